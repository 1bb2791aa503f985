package inspect

// DefaultSource is how people are shown, and write, the source of ours whose address the
// system chooses.
const DefaultSource = "default"

// SourceName returns the address of one of our sources as people are shown it.
func SourceName(address string) string {
	if address == "" {
		return DefaultSource
	}
	return address
}
