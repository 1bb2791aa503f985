package dashboard

import "strings"

// browserNames are how the usual browsers name themselves; the first that fits wins, since most name others too.
var browserNames = []struct{ mark, name string }{
	{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"HeadlessChrome/", "Chrome without a window"},
	{"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"},
}

// systemNames are how systems are named.
var systemNames = []struct{ mark, name string }{
	{"Windows", "Windows"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Mac OS X", "macOS"},
	{"Linux", "Linux"},
}

// browserName says in few words which browser a User-Agent is. It is what the browser says, so nothing rests on it.
func browserName(agent string) string {
	name, system := "Another browser", ""
	for _, b := range browserNames {
		if strings.Contains(agent, b.mark) {
			name = b.name
			break
		}
	}
	for _, s := range systemNames {
		if strings.Contains(agent, s.mark) {
			system = " on " + s.name
			break
		}
	}
	return name + system
}
