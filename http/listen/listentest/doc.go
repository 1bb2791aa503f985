// Package listentest has what the tests of listeners share: certificates, connections from several addresses, PROXY
// headers, and the metrics of what was refused.
package listentest
