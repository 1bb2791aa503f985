// Package web is how pages look: the layout, the parts that pages share, style, scripts, icons, how numbers and
// times are written, and the headers that keep pages safe. It knows nothing of what a page shows, so customers'
// and operators' pages share it.
//
// Start with Pages and Frame.
package web
