// Package browser tests the pages in a real browser: Chromium without a window, driven by chromedp, against a node's
// listeners with a real ledger. It holds tests only.
//
// The tests need chromium-headless-shell (or chromium) and the two programs of npm/package-lock.json: axe-core finds
// barriers for users, html-validate finds invalid HTML. docs/developers/testing.md says how to install and run them:
// with ROLLCALL_REQUIRE_BROWSER=1, as make browser and CI do. Without a browser they are skipped, with a line that says
// so.
//
// A new page needs one line in the table of pages_test.go. Each test has its own browser profile, and fails for
// anything that must not happen on any page: see tab_test.go.
package browser
