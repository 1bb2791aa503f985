// Package receivertest has what tests of the packages of receivers share.
package receivertest
