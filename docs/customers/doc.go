// Package customers is the guide for customers as it stands in this folder, for nodes that serve it at /docs.
// Start with README.md.
package customers

import "embed"

// Files are its pages in Markdown.
//
//go:embed *.md
var Files embed.FS
