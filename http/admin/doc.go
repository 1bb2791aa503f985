// Package admin is the operator's listener: health, metrics, and the operator API.
//
// Without a token:
//
//	GET /healthz   200 while the process lives
//	GET /readyz    200 while the ledger answers, the node has joined and is not draining, else 503;
//	               "probing" says why the node does not probe, if it does not
//	GET /metrics   Prometheus
//
// With "Authorization: Bearer" and the token of DATA_DIR/admin.token, JSON both ways:
//
//	POST /v1/workspaces               {"name"} -> {"id","name"}
//	GET  /v1/workspaces               {"workspaces":[{"id","name","created_at","weight"}]}
//	POST /v1/workspaces/{id}/weight   {"weight"} -> {"id","name","created_at","weight"}
//	GET  /v1/workspaces/{id}/limits   WorkspaceLimits
//	POST /v1/workspaces/{id}/limits   LimitsCall -> the same
//	POST /v1/workspaces/{id}/keys     {"label"} -> {"id","key"}, the only time the key is shown
//	GET  /v1/workspaces/{id}/keys     {"keys":[{"id","label","created_at","revoked_at"}]}
//	POST /v1/keys/{id}/revoke         {"id","revoked_at"}
//	POST /v1/workspaces/{id}/credits  {"id","credits","reason"} -> {"granted","available","held","spent"}
//	GET  /v1/workspaces/{id}/credits  the same balance
//	GET  /v1/workspaces/{id}/verifications/{verification}/entries?limit=&after=
//	                                  {"verification","status","addresses","held","charged","released","still_held",
//	                                  "count","entries":[{"at","kind","settlement","credits"}],"next"}
//	GET  /v1/verifications?prefix=    {"verifications":[id]}, those whose ids begin so, at most AlikeMax
//	POST /v1/verifications/{id}/evidence
//	                                  {"address"} -> Explanation
//	GET  /v1/verifications/{id}/waits inspect.Verification: what its open addresses wait for, and until when
//	GET  /v1/receivers                inspect.Receivers
//	GET  /v1/receivers/detail?key=    {"receivers":[inspect.ReceiverDetail]}, one for each node
//	POST /v1/receivers/close          {"key","node","session"} -> the same: ends one session
//	POST /v1/receivers/forget         {"key","what","reason"} -> {"receivers":[inspect.Forgotten],"silent"}; what is
//	                                  pace, sessions, block or all
//	GET  /v1/receivers/trace?key=&source=&after=
//	                                  {"lines":[inspect.TraceLine],"after"}; after, as it is, asks for the next ones
//	GET  /v1/sources                  {"sources":[inspect.Source],"silent"}
//	GET  /v1/throttle                 ThrottleRules; with files=all also of which nodes the file differs
//	GET  /v1/throttle/explain?name=   inspect.Explanation, of a mail domain, a key or source:ADDRESS;
//	                                  with by=name by the rules alone, without DNS
//	POST /v1/throttle/overrides       OverrideCall -> its ThrottleRule
//	POST /v1/throttle/clear           ClearCall -> {"cleared":[ThrottleRule]}
//	POST /v1/throttle/replay          {"throttle"}, text of a candidate file -> inspect.Replayed
//	GET  /v1/log?before=&after=&limit=
//	                                  LogPage, of what operators changed
//	GET  /v1/audit                    what an audit of the ledger found
//	POST /v1/audit/corrections        CorrectionCall -> ledger.Correction
//	GET  /v1/identity                 Identity, of the node that answers alone
//	POST /v1/identity/check           Identity, after a look at everything
//	GET  /v1/cluster/members          Membership
//	POST /v1/cluster/drain            {"node"} -> its Member; "" is the node that answers
//	POST /v1/cluster/undrain          {"node"} -> its Member; "" is the node that answers
//	POST /v1/cluster/forget           {"node"} -> its Member
//	GET  /v1/cluster/keys             KeyAnswer
//	POST /v1/cluster/keys             {"op":"add","key"} or {"op":"use" or "remove","fingerprint"} -> KeyAnswer
//	POST /v1/operate                  OperateCall -> OperateLink, which opens the pages once, within a minute
//
// All other paths are the operators' pages, which need a session instead of the token: package operate.
//
// Every node answers for the whole cluster, unless a call says otherwise. A node is named by its name, its id or the
// beginning of its id. A gossip key occurs only in the body of one call, which passes it to the Cluster.
//
// The header Rollcall-Operator, of at most 200 bytes, names the author of a change for the operator log. It is not
// checked: anybody with the token may send any name.
//
// An email address occurs only in the body of a call and in its answer, never in a URL or a log.
//
// Refusals are {"error":{"code","message"}}, and the message says what to do. The listener belongs on loopback or on
// a private network: it speaks no TLS. Audits may take minutes; Drain ends them. Start with Options, Server, Cluster
// and EnsureToken.
package admin
