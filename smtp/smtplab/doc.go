// Package smtplab simulates receivers and their DNS on loopback or in a private network of its own, for tests, for
// load, and for showing a whole file finish without the internet.
//
// A Lab has one DNS server, and one port on which every host listens at an address of its own inside Options.Network,
// which needs a system where all of that is local, as 127.0.0.0/8 is on Linux. A host gets its address (from a hash of
// its name) and starts to listen when DNS first returns it, so thousands of domains cost nothing before they are asked
// for.
//
// The lab is also the referee: Truth knows the right outcome of an address, and Manners shows how the client behaved.
//
// # Domains
//
// Under .test the last "-" part of a name says how its receiver behaves: acme-clean.test, shop-catchall.test, or just
// clean.test. Names beneath such a domain are its tenants (eu.acme-clean.test). A name without a known personality does
// not exist. The MX hosts are mx1.<domain>, and mx2.<domain> where there are two. Add puts other domains beside these.
//
// # Mailboxes
//
// The local part decides. A mailbox exists when its name is letters, at most one dot between letters, at most four
// digits at the end, and 15 bytes in all: anna, anna.smith, anna.smith12. Anything else does not exist; above all no
// control probe, since these are longer. Some first letters have a meaning: see Mailbox.
//
// # Personalities
//
// There are those that answer by mailbox, with and without STARTTLS; that say the same for every address; that
// greylist, limit or guard; that refuse us; that DNS shows; broken ones; servers as they come; providers, whose MX
// hosts have names beneath the real ones, inside the lab's DNS only; and the hostile ones, which begin
// with "h", and with "tls" behind them come after STARTTLS. What a provider says about us is a personality with a word
// behind its name, such as googlerate and gmxptr; Personality.Base names the provider.
//
// Personality.About says in one sentence what each does; Personalities lists them, and "rollcall lab --list" prints
// them. They follow what real receivers do by default (RFC 5321, RFC 6647, and the defaults of Postfix, Exim, chasquid
// and others), in short texts of our own with their codes and key words.
//
// Guards and greylisting know a client by its address, so each loopback address that a client speaks from is another
// client.
//
// # Lists
//
// Sample makes the list of a demonstration.
//
// Start with Lab, Personality and Sheet.
package smtplab
