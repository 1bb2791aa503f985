// Package pagetest has what tests of pages need, and tests all pages in a real browser.
//
// For tests of pages it has the operator's pages on a real listener with a real ledger. Their cluster is fake: it has
// nodes, sources, findings and a receiver in each state. It also has an OpenID Connect provider on loopback. The
// provider speaks OpenID Connect Discovery 1.0 and the code flow of OpenID Connect Core 1.0 with PKCE (RFC 7636), has
// one client, and can give false answers. A test plays the browser and gets codes from Give.
//
// Its own tests drive Chromium without a window, by chromedp, against a node's listeners with a real ledger. They
// need chromium-headless-shell (or chromium) and the two programs of npm/package-lock.json: axe-core finds barriers
// for users, html-validate finds invalid HTML. They run with ROLLCALL_REQUIRE_BROWSER=1, as make browser and CI do;
// see docs/developers/testing.md. A new page needs one line in the table of pages_test.go. Each test has its own
// browser profile, and fails if anything happens that must not happen on any page: see tab_test.go.
package pagetest
