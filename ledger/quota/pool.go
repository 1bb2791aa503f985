package quota

import "sync"

// Pool is a bounded amount that tenants share, such as places, bytes or connections. Safe for concurrent use.
type Pool[Tenant comparable] struct {
	mu   sync.Mutex
	size int64
	used int64
	has  map[Tenant]int64
}

// New makes a pool of size, all free.
func New[Tenant comparable](size int64) *Pool[Tenant] {
	return &Pool[Tenant]{size: max(size, 0), has: map[Tenant]int64{}}
}

// Take gives a tenant n more, or nothing, and reports which. Weight is at least 1: with 2 a tenant may have twice
// the free amount.
func (p *Pool[Tenant]) Take(t Tenant, weight int, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(t, weight, n) {
		return false
	}
	p.used += n
	p.has[t] += n
	return true
}

// Fits reports whether Take would give it.
func (p *Pool[Tenant]) Fits(t Tenant, weight int, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits(t, weight, n)
}

func (p *Pool[Tenant]) fits(t Tenant, weight int, n int64) bool {
	free := p.size - p.used
	return n >= 0 && n <= free && p.has[t]+n <= int64(max(weight, 1))*free
}

// Return takes back n of what a tenant has, at most all.
func (p *Pool[Tenant]) Return(t Tenant, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = max(0, min(n, p.has[t]))
	p.used -= n
	if p.has[t] -= n; p.has[t] == 0 {
		delete(p.has, t)
	}
}

// Has returns what a tenant has.
func (p *Pool[Tenant]) Has(t Tenant) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has[t]
}

// Used returns what all tenants have together.
func (p *Pool[Tenant]) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Size returns the whole amount, taken or free.
func (p *Pool[Tenant]) Size() int64 { return p.size }

// Full lists the tenants that may not take another although one is free.
func (p *Pool[Tenant]) Full(weight func(Tenant) int) []Tenant {
	p.mu.Lock()
	defer p.mu.Unlock()
	var full []Tenant
	for t := range p.has {
		if p.used < p.size && !p.fits(t, weight(t), 1) {
			full = append(full, t)
		}
	}
	return full
}
