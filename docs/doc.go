// Package docs holds the guide for customers, for nodes that serve it at /docs, and the tests of all documents.
package docs

import "embed"

// Customers holds the pages of the guide in Markdown, below customers/. Start with README.md.
//
//go:embed customers/*.md
var Customers embed.FS
