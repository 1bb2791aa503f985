package provider

// WaitForEver lets a provider take as long as it likes.
func (p *Provider) WaitForEver() { p.client.Timeout = 0 }
