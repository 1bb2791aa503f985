package clerk

import (
	"context"

	"rollcall/actors/inspect"
	"rollcall/smtp/throttle"
)

// fileNow is how the throttle file of a node stands.
type fileNow struct {
	Hash  string `json:"hash"` // of the rules of it that hold
	Fault string `json:"fault,omitempty"`
}

// file says how this node's throttle file stands.
func (c *Clerk) file() *fileNow {
	f := &fileNow{Hash: throttle.Fingerprint(c.options.Table.Rules(throttle.LayerFile))}
	if c.options.Fault != nil {
		f.Fault = c.options.Fault()
	}
	return f
}

// Files names the nodes whose throttle file says something else than that of this node, and
// the others whose file cannot be used.
func (c *Clerk) Files(ctx context.Context) ([]inspect.OtherFile, []inspect.Silent, error) {
	all, err := c.ask(ctx, question{Kind: kindFile})
	if err != nil {
		return nil, nil, err
	}
	own := c.file()
	var out []inspect.OtherFile
	for _, s := range all {
		if s.err != nil || s.File == nil || s.name == c.name() && s.File.Hash == own.Hash {
			continue
		}
		if o := (inspect.OtherFile{Node: s.name, Differs: s.File.Hash != own.Hash, Fault: s.File.Fault}); o.Differs ||
			o.Fault != "" {
			out = append(out, o)
		}
	}
	return out, silent(all), nil
}
