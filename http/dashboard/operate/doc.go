// Package operate is the pages of operators, on the admin listener: what the commands show in a terminal, in a browser.
// Nothing of it can be reached from the customers' listener. Signing in asks no ledger, so the pages also answer while the
// ledger does not.
//
// Routes; an observer (`rollcall operate --read-only`) may only use those that begin with GET, and ask for evidence, which is
// a POST so that no address is in a URL.
//
//	GET  /sign-in                        how to get a link; ?next= is the page to return to
//	GET  /link/{code}                    what a link of `rollcall operate` is for; POST uses it up
//	POST /sign-out
//	POST /colours                        light, dark, or same as the system
//	GET  /assets/{name}                  styles and scripts
//	GET  /docs                           the customers' guide; GET /docs/{page} a page of it
//	GET  /openapi.yaml                   the description of the customers' API
//	GET  /status                         the same as /health
//	GET  /{$}                            the slowest open files, and receivers of the whole cluster, most waiting first
//	GET  /receivers/live                 its table, asked for again and again
//	GET  /receivers/{key}                one receiver, with ?trace=1 also what is said; /live and /trace/live below it
//	POST /receivers/{key}/close          ends a session
//	POST /receivers/{key}/forget         drops what a receiver taught us
//	GET  /verifications                  of all workspaces, those that are not done, stuck ones first
//	GET  /verifications/{id}             one of them: what it waits for, what moved its credits
//	POST /verifications/{id}/evidence    how the outcome of one address came about; it changes nothing, observers may ask
//	GET  /throttles                      the rules of all layers, with ?name= what holds for it and a form for an override;
//	                                     /live is its overrides, asked for again and again
//	POST /throttles/preview              what an override would change; POST /throttles/set sets it
//	POST /throttles/clear                ends overrides before their time
//	GET  /cluster                        the members
//	GET  /cluster/{node}                 one of them; POST /drain, /undrain and /forget below it
//	GET  /sources                        our addresses; /live is its register, asked for again and again
//	GET  /sources/change                 asks before a source is paused, drained or resumed; POST does it
//	GET  /workspaces                     balances and weights
//	GET  /workspaces/{id}                one of them: credits, limits, keys, people, what is open; POST /grant grants credits,
//	                                     /weight and /limits set these, /invite makes a link, all below it
//	GET  /workspaces/{id}/keys/{key}     asks whether a key shall end; POST /revoke below it ends it
//	POST /workspaces/{id}/people/{user}/end-sessions, /disable and /enable for a member
//	GET  /log                            what operators changed
//	GET  /health                         what every node found of its identity, and what to do; the last audit of this node,
//	                                     whose part is /live; POST /health/audit runs one
//
// Start with Pages and routes.
package operate
