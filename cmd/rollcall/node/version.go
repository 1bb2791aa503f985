package node

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// InterfaceVersion is the version of the customer's interface that this binary serves.
const InterfaceVersion = "0.1.0"

// Version says which binary this is.
type Version struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Interface string `json:"interface"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
}

// String is the version in one line, for people.
func (v Version) String() string {
	return fmt.Sprintf("rollcall %s (commit %s, interface %s, %s, %s)", v.Version, v.Commit, v.Interface, v.Go, v.Platform)
}

// VersionOf reads what the Go tool has written into the binary.
func VersionOf(info *debug.BuildInfo, ok bool) Version {
	v := Version{
		Version: "devel", Commit: "unknown", Interface: InterfaceVersion,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
