package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed assets/*.css assets/*.js assets/*.svg
var assetFiles embed.FS

// assetTypes are the media types by the end of the name.
var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml"}

// assetAge is how long a browser keeps a file whose name changes with its content, in seconds.
const assetAge = 31536000

// asset is one file, as it is and compressed.
type asset struct {
	kind        string
	plain, gzip []byte
}

// Assets are the files that pages need, by the name in their URL, which holds a hash of the content.
type Assets struct {
	byURL map[string]asset
	urls  map[string]string // by the name in the folder
}

// NewAssets reads and compresses them.
func NewAssets() (*Assets, error) {
	a := &Assets{byURL: map[string]asset{}, urls: map[string]string{}}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		plain, err := assetFiles.ReadFile(path.Join("assets", f.Name()))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := z.Write(plain); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		end := path.Ext(f.Name())
		sum := sha256.Sum256(plain)
		name := strings.TrimSuffix(f.Name(), end) + "." + hex.EncodeToString(sum[:8]) + end
		if assetTypes[end] == "" {
			return nil, fmt.Errorf("no media type for %s", f.Name())
		}
		a.byURL[name] = asset{kind: assetTypes[end], plain: plain, gzip: b.Bytes()}
		a.urls[f.Name()] = "/assets/" + name
	}
	return a, nil
}

// URL is the path of a file by its name in the folder; templates ask for it.
func (a *Assets) URL(name string) (string, error) {
	if u, ok := a.urls[name]; ok {
		return u, nil
	}
	return "", fmt.Errorf("there is no asset %s", name)
}

// URLs are the paths of all.
func (a *Assets) URLs() []string { return slices.Sorted(maps.Values(a.urls)) }

// Serve answers a request for the file of a name, as its URL has it; false, and no answer, when there is none.
func (a *Assets) Serve(w http.ResponseWriter, r *http.Request, name string) bool {
	found, ok := a.byURL[name]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", found.kind)
	h.Set("Cache-Control", "public, max-age="+strconv.Itoa(assetAge)+", immutable")
	h.Set("Vary", "Accept-Encoding")
	body := found.plain
	if takesGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = found.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	return true
}

// takesGzip reports whether a client takes gzip: it names it, and not with a weight of zero.
func takesGzip(values []string) bool {
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(item, " ", ""), ";")
		if strings.EqualFold(coding, "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(weight), "q="), 64)
			return weight == "" || err == nil && q > 0
		}
	}
	return false
}
