// Package flags describes an address without asking anybody: it names a function and not a person, is at a provider
// with free mailboxes, is at a domain with throwaway mailboxes, or is one typing error away from a large provider.
// It uses lists of names in data; each list has its source and date.
//
// A flag is never an outcome: an address with any of them may take mail.
//
// Start with Cache and Lists.
package flags
