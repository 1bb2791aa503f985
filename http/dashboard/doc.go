// Package dashboard is what customers see in a browser: pages that the server renders, with forms that work without
// script. They are no API: a cookie opens them and nothing else, a key of the API never does.
//
// Its routes, with who may use them (a role may do what those before it may):
//
//	GET  /                                     anybody: leads to the workspace shown last, or to sign-in
//	GET  /assets/{name}                        anybody
//	GET  /docs                                 anybody: the customers' guide
//	GET  /docs/{page}                          anybody: a page of it
//	GET  /status                               anybody: whether the service works
//	GET  /sign-in                              anybody
//	POST /sign-in                              anybody
//	POST /sign-in/code                         anybody: the code after the password
//	POST /sign-out                             anybody
//	GET  /oidc/start                           anybody: leads to the provider
//	GET  /oidc/back                            who comes from the provider: signs in
//	POST /oidc/join                            who comes from the provider for the first time: accepts invitations
//	GET  /link/{token}                         who has the link: what it is for
//	POST /link/{token}                         who has the link: uses it up
//	GET  /you                                  who is signed in: password, two-step sign-in, sessions, appearance
//	POST /you/password                         who is signed in
//	POST /you/provider                         who is signed in: leads to the provider, to be bound to it
//	POST /you/provider/off                     who is signed in: ends that they sign in by it
//	GET  /you/codes                            who is signed in: sets up an app for codes
//	POST /you/codes                            who is signed in: switches codes on
//	POST /you/codes/off                        who is signed in
//	POST /you/codes/new                        who is signed in: makes new recovery codes, which the answer shows once
//	POST /you/codes/saved                      who is signed in: asks for one of them, to see that they were kept
//	POST /you/sessions                         who is signed in: ends sessions
//	POST /you/colours                          who is signed in
//	GET  /w/{ws}                               viewer: the verifications
//	GET  /w/{ws}/upload                        member: the form to upload a file
//	GET  /w/{ws}/example.csv                   member: a file to try
//	POST /w/{ws}/verifications                 member: creates or recovers one, as the API does, for upload.js
//	GET  /w/{ws}/verifications/{id}            viewer: one verification
//	GET  /w/{ws}/verifications/{id}/live       viewer: the part of it that is asked for again and again
//	GET  /w/{ws}/verifications/{id}/upload     member: its upload URL, as the API tells it, for upload.js
//	GET  /w/{ws}/verifications/{id}/cancel     member: asks whether it shall be cancelled
//	POST /w/{ws}/verifications/{id}/cancel     member
//	GET  /w/{ws}/verifications/{id}/results.csv viewer: its results, or some of them
//	GET  /w/{ws}/verifications/{id}/results    viewer: its results, newest first
//	POST /w/{ws}/verifications/{id}/results    viewer: the same, looked for by a part of an address
//	GET  /w/{ws}/verifications/{id}/reasons    viewer: what its outcomes have in common
//	GET  /w/{ws}/verifications/{id}/addresses/{ordinal} viewer: one outcome, and what was asked and answered
//	GET  /w/{ws}/check                         member: the form to check one address
//	POST /w/{ws}/check                         member: checks one address
//	GET  /w/{ws}/credits                       viewer: what the workspace has, spent and moved
//	GET  /w/{ws}/keys                          owner: the keys of the API
//	POST /w/{ws}/keys                          owner: makes one, which the answer shows once
//	GET  /w/{ws}/keys/{key}                    owner: asks whether it shall be revoked
//	POST /w/{ws}/keys/{key}/revoke             owner
//	GET  /w/{ws}/people                        owner: members and invitations
//	POST /w/{ws}/people                        owner: invites, with a link that the answer shows once
//	POST /w/{ws}/people/links                  owner: withdraws an invitation
//	GET  /w/{ws}/people/{user}                 owner: one member
//	POST /w/{ws}/people/{user}/role            owner: changes the role, or ends the membership
//	POST /w/{ws}/people/{user}/sessions        owner: ends all their sessions
//	GET  /w/{ws}/activity                      owner: what was done in the workspace
//
// Each request is checked in one order: session, membership, role. A workspace that is not one's own is not there (404);
// what a role may not do is not drawn, and refused (403) when it is asked all the same. GET changes nothing, but for
// /oidc/back, which the standard wants so: it signs in who has come from the provider in the browser that went there. A form
// that is sent twice does what it does once.
//
// Pages are written with net/http and mounted by fasthttp's adaptor, which holds a whole answer in memory: at most
// 512 KiB. Downloads and what upload.js asks are done by package http itself (http.PageRequest).
//
// Start with Options, Dashboard and routes.
package dashboard
