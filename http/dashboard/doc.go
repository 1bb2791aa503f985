// Package dashboard is what customers see in a browser: pages that the server renders, with forms that work without
// script. They are no API: a cookie opens them and nothing else, a key of the API never does.
//
// Each request is checked in one order: session, membership, role. A workspace that is not one's own is not there (404);
// what a role may not do is not drawn, and refused (403) when it is asked all the same. GET changes nothing, but for
// /oidc/back, which the standard wants so: it signs in who has come from the provider in the browser that went there. A form
// that is sent twice does what it does once.
//
// Pages are written with net/http and mounted by fasthttp's adaptor, which holds a whole answer in memory: at most
// 512 KiB. Downloads and what upload.js asks are done by package http itself (http.PageRequest).
//
// Start with routes.go, which says what each path is and who may use it, then Options and Dashboard.
package dashboard
