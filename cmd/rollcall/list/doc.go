// Package list reads the lists of addresses that people have: CSV with any separator, in UTF-8, UTF-16 or Latin-1, and
// workbooks. It finds the column of the addresses, checks each as the service will (package intake has the rules),
// writes the single column that the service accepts, and joins results to their rows.
//
// Start with Open, Walk and Join.
package list
