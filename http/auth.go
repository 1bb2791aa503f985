package http

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"rollcall/http/api"
	"rollcall/http/apikey"
	"rollcall/http/listen"
	"rollcall/ledger"
)

const (
	headerAPIKey    = "X-API-Key"
	headerForwarded = "X-Forwarded-For"
)

// admit makes the checks of key, origin and rate; it answers and gives false when
// one refuses.
func (s *Server) admit(ctx context.Context, r *request) bool {
	key, ok := s.identify(ctx, r)
	if !ok {
		return false
	}
	r.key = key
	if s.origins.Foreign(r.RequestCtx) && r.route != routeCredits {
		s.refuse(r, api.OriginNotAllowed, 0)
		return false
	}
	bucket, name := s.limits.reads, "reads"
	if r.route == routeVerifications && !r.read {
		bucket, name = s.limits.creates, "creates"
	}
	if wait := bucket.takeToken(key.ID); wait > 0 {
		s.limited(r, name, wait)
		return false
	}
	return true
}

// identify says whose key a request has; it answers and gives false when it has
// none that is good. Only keys that are rejected count against their network
// address, and only they are refused for it: others may share that address.
func (s *Server) identify(ctx context.Context, r *request) (key ledger.Key, ok bool) {
	address := listen.NetworkOf(s.client(r))
	values := r.Request.Header.PeekAll(headerAPIKey)
	if len(values) == 0 || len(values) == 1 && len(values[0]) == 0 {
		s.refuse(r, api.MissingAPIKey, 0) // no guess
		return ledger.Key{}, false
	}
	known := keyRejected
	var presented apikey.Key
	if len(values) == 1 { // the library would take the first of several
		presented, ok = apikey.Parse(values[0])
		if ok {
			key, known = s.keys.recall(presented)
		}
	}
	switch known {
	case keyAccepted:
		return key, true
	case keyRejected:
		s.reject(r, api.InvalidAPIKey, s.badKeys.takeToken(address))
		return ledger.Key{}, false
	case keyStale: // it was good and has the right secret: that is no guess
		return s.lookUp(ctx, r, presented, func() time.Duration { return s.badKeys.takeToken(address) }, func() {})
	}
	if s.badKeys.takeToken(address) == 0 { // until the ledger says that it is good
		return s.lookUp(ctx, r, presented, func() time.Duration { return 0 }, func() { s.badKeys.returnToken(address) })
	}
	if wait := s.lookups.takeToken(address); wait > 0 {
		s.limited(r, "key_lookups", wait)
		return ledger.Key{}, false
	}
	return s.lookUp(ctx, r, presented, func() time.Duration { return s.badKeys.takeToken(address) }, func() {})
}

// client gives the address that a request comes from, by what trusted proxies say.
func (s *Server) client(r *request) netip.Addr {
	return s.options.Trusted.Client(listen.IPOf(r.RemoteAddr()), r.Request.Header.PeekAll(headerForwarded))
}

// lookUp asks the ledger about a key. rejected gives the wait of a key that is not
// good, notBad is called for one that is good or that nobody could be asked about.
func (s *Server) lookUp(ctx context.Context, r *request, presented apikey.Key, rejected func() time.Duration,
	notBad func()) (ledger.Key, bool) {
	key, err := s.keys.look(ctx, presented)
	if errors.Is(err, errBadKey) {
		s.reject(r, api.InvalidAPIKey, rejected())
		return ledger.Key{}, false
	}
	notBad()
	if err != nil { // never 401: nobody knows whether the key is good
		s.unavailable(r, "read key", err)
		return ledger.Key{}, false
	}
	return key, true
}

// reject answers a request whose key is rejected: 401, or 429 when its address has to wait.
func (s *Server) reject(r *request, code api.Code, wait time.Duration) {
	if wait > 0 {
		s.limited(r, "bad_keys", wait)
		return
	}
	s.refuse(r, code, 0)
}

// limited answers 429 with the time to the next token.
func (s *Server) limited(r *request, limit string, wait time.Duration) {
	s.metrics.limited.WithLabelValues(limit).Inc()
	s.refuse(r, api.RateLimited, seconds(wait, 1, 60))
}

// unavailable answers 503 for a ledger that did not answer. The error is logged,
// not more than one in complaintEvery; it holds no address and no secret by the
// rules of the ledger.
func (s *Server) unavailable(r *request, step string, err error) {
	s.noAnswer.Write(time.Now(), "stage", step, "route", routeNames[r.route],
		"request", listen.RequestID(r.RequestCtx), "err", err)
	s.refuse(r, api.ServiceUnavailable, listen.Jitter(5, 5))
}
