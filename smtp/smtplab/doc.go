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
// control probe, since these are longer. Some first letters have a meaning:
//
//	nobody… ghost…    does not exist, whatever its form
//	disabled…         550 5.2.1
//	full…             552 5.2.2, full for good
//	overquota…        452 4.2.2, full at the moment
//	restricted…       550 5.7.2, takes mail from members only
//	busy…             450 4.2.1, exists but receives too much
//	grey…             451 4.7.1 for Options.GreylistWait, then 250
//	deferred…         451 4.3.0, whenever it is asked
//	refused…          550 5.7.1
//	cut…              the connection ends
//	closing…          421 4.2.1, and the session ends
//
// # Personalities
//
// Answer by mailbox: clean, plain, unavailable, nopipe, noutf8, helo, heloonly, heloagain,
// exchange, multiline, chatty, formula, nonascii, lying, barelf, slow, tarpit, pregreet; with
// STARTTLS: starttls, tlsonly, tlsrefused, tlsbroken, tlsstalled, tlsinjected, tlsdies, tlsmute.
//
// The same for every address: catchall, cannotsay, tempfail, norelay.
//
// Greylisting: greylist, quietgrey, fullgrey, postscreen, postgrey, plesk, harakagrey, stalwartgrey, zerospamgrey,
// barracudagrey, mimecastgrey, rspamd, yandexgrey, hellogrey, proofpointcall, postfixunverified.
//
// Limits and guards: onesession, fewconnects, onercpt, fewrcpts, short, ratelimit, chasquid, postfix, exim, cisco,
// ciscoqueue, forcepoint, ionos, symantec, nospamtoday, badtx, yahooold.
//
// Refuse us: blocked, policy, badhello, badsender, closing, nomail, blockone, blockeven, noptr, badspf.
//
// Shown by DNS: nxdomain, nodata, nullmx, nullmxmore, implicit, alias, hostalias, twomx, firstdown, backup, dnstcp,
// inside, unreachable, lostmx, aliasloop, servfail, dnsrefused, dnssilent, literalmx, literalmore, manymx,
// manyaddresses, addressdown, hostchain, hostchainlong, chain, chainlong, sixonly, sixinside.
//
// Broken: flaky, silent, silenthello, silentmail, silentrcpt, dropgreeting, drophello, dropmail, droprcpt,
// resetgreeting, resethello, resetmail, resetrcpt, endless, endlessline, garbage, badcode, nocode, go354, twocodes.
//
// Servers as they come: postfixvirtual, postfixsoft, exchangeopen, exchangetarpit, qmail, qmailpatched, mox, moxone,
// stalwart, haraka, sendmail, eximcpanel.
//
// Providers, whose MX hosts have names beneath the real ones, inside the lab's DNS only: google, workspace, outlook,
// outlookregions, office365, office365resolver, office365open, yahoo, yahoodd, icloud; the gateways proofpoint,
// proofpointmarked, mimecast, mimecasttls, barracuda, ironport, messagelabs, trendmicro, zerospam, fireeye; and gmx,
// tonline, freenet, orange, freefr, comcast, att, cox, godaddy, rackspace, hey, improvmx, ovh, hotee, yandex, mailru,
// rambler, nicru, zoho, qq, netease.
//
// What a provider says about us is a personality with a word behind its name, such as googlerate and gmxptr;
// Personality.Base names the provider.
//
// The 64 hostile behaviours of HostileRows begin with "h", such as hnul; with
// "tls" behind them they come after STARTTLS.
//
// Personality.About says in one sentence what each does; Personalities lists them, and "rollcall lab --list" prints
// them. They follow what real receivers do by default (RFC 5321, RFC 6647, and the defaults of Postfix, Exim, chasquid
// and others), in short texts of our own with their codes and key words.
//
// Guards and greylisting know a client by its address, so each loopback address
// that a client speaks from is another client.
//
// # Lists
//
// List makes labelled addresses over a mix of personalities; Sample makes the list of a demonstration.
//
// Start with Lab, Personality and Sheet.
package smtplab
