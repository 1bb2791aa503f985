package node

import (
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/http/api"
)

// throttleFileView shows operators how the throttle file of a node stands.
func throttleFileView(s config.ThrottleState) admin.ThrottleFile {
	out := admin.ThrottleFile{File: s.File}
	if s.Found {
		loaded := api.Time(s.At)
		out.Loaded = &loaded
	}
	if s.Err != nil {
		out.Fault = s.Err.Error()
	}
	return out
}
