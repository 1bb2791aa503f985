// Package flags says of an address what can be said without asking anybody: that it is of a function and not of a
// person, at a provider whose mailboxes are free, at a domain of throwaway mailboxes, or one typing error away
// from a large provider. It rests on lists of names in data, each of which says whence and when it is.
//
// A flag is never an outcome: an address with any of them may take mail.
//
// Start with Cache and Lists.
package flags
