package inspect

// DefaultSource is how people are shown, and write, the source of ours whose address the
// system chooses.
const DefaultSource = "default"

// SourceName gives the address of a source of ours as people are shown it.
func SourceName(address string) string {
	if address == "" {
		return DefaultSource
	}
	return address
}
