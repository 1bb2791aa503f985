// Package nettest has what tests of listeners share: certificates, connections from several addresses, PROXY headers,
// requests and the metrics of what was refused. It stands beside package effort, so that tests without a network link
// neither net/http nor the metrics.
package nettest
