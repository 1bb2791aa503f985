// Package browser tests the pages in a real browser: Chromium without a window, driven by chromedp, against a node's
// listeners with a real ledger. It holds tests only.
//
// The tests need chromium-headless-shell (or chromium) and the two programs of npm/package-lock.json: axe-core looks for
// what people cannot use, html-validate for what is no HTML. docs/developers/testing.md says how to install and run them: with
// ROLLCALL_REQUIRE_BROWSER=1, as make browser and CI do. Without it they say in one line that they are skipped.
//
// A new page needs one line in the table of pages_test.go. Each test has a browser profile of its own, which fails for
// whatever must not happen on any page: see tab_test.go.
package browser
