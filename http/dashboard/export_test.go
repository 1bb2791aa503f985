package dashboard

// Patterns gives the routes, for tests.
func Patterns() (all []string) {
	for _, r := range routes {
		all = append(all, r.pattern)
	}
	return all
}

// BrowserName and others are looked at alone.
var (
	BrowserName = browserName
	LocalPath   = localPath
)

// AssetURLs are the paths of all assets.
func AssetURLs(d *Dashboard) []string { return d.assets.URLs() }
