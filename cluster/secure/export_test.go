package secure

import "time"

// LookAgain makes the next use look at the files, as if the last look were long ago.
func (i *Identity) LookAgain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looked = time.Time{}
}
