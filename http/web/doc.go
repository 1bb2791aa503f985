// Package web is the look of pages: layout, shared parts, style, scripts, icons, the forms of numbers and times, and
// the security headers. It knows nothing about the content of pages, so customers' and operators' pages share it.
//
// Start with Pages and Frame.
package web
