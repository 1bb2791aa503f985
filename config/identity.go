package config

import "net/netip"

const (
	// publicAddressesMax bounds the addresses that are checked, and namesMax the hosts
	// and lists that are asked each time. Guesses: more would only make noise.
	publicAddressesMax = 64
	namesMax           = 8
)

func (i Identity) check(k *checker) {
	if n := len(i.PublicAddresses); n > publicAddressesMax {
		k.add("identity.public_addresses", "%d addresses are too many: write at most %d", n, publicAddressesMax)
	}
	for _, a := range i.PublicAddresses {
		if _, err := netip.ParseAddr(a); err != nil {
			k.add("identity.public_addresses", "%q is not an IP address: write the ones that receivers see", a)
		}
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"identity.reach", i.Reach}, {"identity.block_lists", i.BlockLists}} {
		if n := len(list.names); n > namesMax {
			k.add(list.key, "%d names are too many: write at most %d", n, namesMax)
		}
		for _, name := range list.names {
			if !hostName(name) {
				k.add(list.key, "%q is not a host name: write one such as mail.example.com", name)
			}
		}
	}
}
