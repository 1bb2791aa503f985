// Package list reads the lists of addresses that people have: CSV with any separator, in UTF-8, UTF-16 or Latin-1,
// and workbooks. It finds the column with the addresses and checks each address as the service will (package intake
// has the rules). It writes the single column that the service accepts, and joins results to the rows of the list.
//
// Start with Open, Walk and Join.
package list
