package operate

// Patterns returns the routes, for a test that checks that each is in its table.
func Patterns() []string {
	out := make([]string, 0, len(routes))
	for _, r := range routes {
		out = append(out, r.pattern)
	}
	return out
}
