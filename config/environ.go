package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// EnvironPrefix begins the name of every setting in the environment.
const EnvironPrefix = "ROLLCALL_"

// reservedNames are names with our prefix that are read by commands, not settings.
var reservedNames = []string{"ROLLCALL_ADMIN", "ROLLCALL_ADMIN_TOKEN", "ROLLCALL_API", "ROLLCALL_AUTHOR", "ROLLCALL_KEY"}

// EnvironName is the environment's name of a dotted key: smtp.port is ROLLCALL_SMTP_PORT.
func EnvironName(key string) string {
	return EnvironPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// UnknownEnviron returns the names in environ that have our prefix and mean
// nothing to us. It is for a warning and not refused, because platforms put
// names of their own there (Kubernetes: ROLLCALL_SERVICE_HOST and others for a
// service called rollcall).
func UnknownEnviron(environ []string) []string {
	c := defaults()
	known := map[string]bool{}
	for key := range keysOf(&c) {
		known[EnvironName(key)] = true
	}
	var unknown []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, EnvironPrefix) && !known[name] && !slices.Contains(reservedNames, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// applyEnviron sets what the environment sets. A list is written with commas.
// The exceptions of single receivers can't be set there.
func applyEnviron(c *Config, environ []string, at places) (found []Finding) {
	values := map[string]string{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		values[name] = value
	}
	leaves("", reflect.ValueOf(c).Elem(), func(key string, v reflect.Value) {
		name := EnvironName(key)
		text, set := values[name]
		if !set || strings.Contains(key, "*") {
			return
		}
		if err := setText(v, strings.TrimSpace(text)); err != nil {
			found = append(found, position{file: name}.finding(SeverityError, fmt.Sprintf("%s: %v", key, err)))
			return
		}
		at[key] = position{file: name}
	})
	return found
}

// setText sets v from text.
func setText(v reflect.Value, text string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	case reflect.Slice:
		return setList(v, text)
	}
	return nil
}

// setList sets a list from texts with commas between them.
func setList(v reflect.Value, text string) error {
	parts := strings.Split(text, ",")
	if text == "" {
		parts = nil
	}
	list := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, p := range parts {
		if err := setText(list.Index(i), strings.TrimSpace(p)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}
