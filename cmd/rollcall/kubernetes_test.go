package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"rollcall/config/effort"
)

// serviceMonitor has the fields of monitoring.coreos.com/v1 that the file uses.
type serviceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port, Scheme string
			TLSConfig    struct {
				InsecureSkipVerify bool `json:"insecureSkipVerify"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// TestKubernetesFile reads each object strictly into the type that an API server has for it: no field is misspelled or
// in the wrong place. Images are pinned, and containers have limits of memory that Go knows.
func TestKubernetesFile(t *testing.T) {
	t.Parallel()
	text := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "deploy", "kubernetes.yaml")))(t)
	var nodes apps.StatefulSet
	kinds := map[string]any{"v1 Service": &core.Service{}, "v1 ConfigMap": &core.ConfigMap{},
		"apps/v1 StatefulSet":                     &nodes,
		"policy/v1 PodDisruptionBudget":           &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
		"networking.k8s.io/v1 Ingress":            &networking.Ingress{},
		"monitoring.coreos.com/v1 ServiceMonitor": &serviceMonitor{}}
	objects := strings.Split(string(text), "\n---\n")
	for _, object := range objects {
		var is meta.TypeMeta
		effort.OK(t, yaml.Unmarshal([]byte(object), &is))
		into := kinds[is.APIVersion+" "+is.Kind]
		if into == nil {
			t.Errorf("no type is known for %s %s", is.APIVersion, is.Kind)
		} else if err := yaml.UnmarshalStrict([]byte(object), into); err != nil {
			t.Errorf("%s: %v", is.Kind, err)
		}
	}
	pod := nodes.Spec.Template.Spec
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		_, version, _ := strings.Cut(filepath.Base(c.Image), ":")
		effort.ErrorIf(t, version == "" || version == "latest", "%s: the image %s has no version", c.Name, c.Image)
	}
	if len(objects) < 8 || len(pod.Containers) != 1 || pod.Containers[0].Resources.Limits.Memory().Value() != 2<<30 {
		t.Errorf("got %d objects and %+v", len(objects), pod.Containers)
	}
}
