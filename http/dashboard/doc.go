// Package dashboard is the customers' web pages: the server renders them, and their forms work without script. They
// are no API: only a session's cookie opens them, never an API key.
//
// Each request is checked in one order: session, membership, role. A workspace without membership answers 404;
// actions that a role may not do are not shown, and are refused (403) if requested anyway. GET changes nothing. The
// standard requires one exception: GET /oidc/back signs in the person who returns from the provider in the same
// browser. A form sent twice acts once.
//
// Pages are written with net/http and mounted by fasthttp's adaptor, which holds a whole answer in memory: at most
// 512 KiB. Package http itself answers downloads and the requests of upload.js (http.PageRequest).
//
// Start with routes.go, which says what each path is and who may use it, then Options and Dashboard.
package dashboard
