package signin

import "context"

// HashPassword makes the stored text of a password, without a service.
func HashPassword(password string) (string, error) {
	return newHasher().hash(context.Background(), password)
}

// VerifyPassword reports whether a stored text belongs to a password.
func VerifyPassword(kept, password string) (bool, error) {
	return newHasher().verify(context.Background(), kept, password)
}

// Common is the list of common passwords.
var Common = common

// HashWaits is how many requests may wait for a hasher.
const HashWaits = hashWaits

// Waiting returns how many requests wait for a service's hasher.
func Waiting(s *Service) int { return int(s.hasher.waiting.Load()) }

// Ended returns how many ended sessions a service remembers.
func Ended(s *Service) int {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return len(s.sessions.ended)
}

// HoldHasher takes all places of a service's hasher. The returned function gives them back.
func HoldHasher(s *Service) func() {
	for range hashesAtOnce {
		s.hasher.places <- struct{}{}
	}
	return func() {
		for range hashesAtOnce {
			<-s.hasher.places
		}
	}
}

// WaitForEver removes the time limit on a provider's answers.
func (p *Provider) WaitForEver() { p.client.Timeout = 0 }
