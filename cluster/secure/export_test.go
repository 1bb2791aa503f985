package secure

import "time"

// LookAgain makes the next use check the files, as if the last check were long ago.
func (i *Identity) LookAgain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looked = time.Time{}
}
