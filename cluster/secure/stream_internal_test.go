package secure

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"rollcall/config/effort"
)

// FuzzBatch: for any bytes, a batch that reaches the library has only valid indexes, known types and right addresses.
func FuzzBatch(f *testing.F) {
	const here, there = "10.0.0.1:7947", "10.0.0.2:7947"
	data := effort.Must(proto.Marshal(&actor.Watch{Watcher: &actor.PID{Address: there, Id: "w"}}))(f)
	seed := &remote.MessageBatch{
		TypeNames: []string{"actor.Watch", "actor.Stop", "rollcall.none"},
		Targets:   []*actor.PID{{Address: here, Id: "a"}, {Address: "10.0.0.3:1", Id: "b"}},
		Senders:   []*actor.PID{{Address: there, Id: "s"}},
		Envelopes: []*remote.MessageEnvelope{{MessageData: data, Sender: 1}, {TypeId: 1}, {TypeId: 2, Target: 1}},
	}
	text := effort.Must(proto.Marshal(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{
		MessageBatch: seed}}))(f)
	f.Add(text)
	f.Add(append(text, text...))
	f.Add([]byte{})
	guard := &Guard{Local: func() string { return here }, Metrics: NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler)}
	f.Fuzz(func(t *testing.T, text []byte) {
		var m remote.RemoteMessage
		if !countable(text) || proto.Unmarshal(text, &m) != nil {
			return
		}
		b := m.GetMessageBatch()
		s := &guarded{guard: guard, name: "node-2", address: there}
		if b == nil || s.sift(b) != nil {
			return
		}
		effort.FatalIf(t, len(b.Envelopes) > partsMax, "%d envelopes in a batch", len(b.Envelopes))
		for _, e := range b.Envelopes {
			if v := judge(b.TypeNames[e.TypeId]); v != typeAllowed && v != typeWatching {
				t.Errorf("type %q passed", b.TypeNames[e.TypeId])
			}
			target := b.Targets[e.Target].Address
			effort.ErrorIf(t, target != here && target != nowhere, "target at %q passed", target)
			if e.Sender != 0 && b.Senders[e.Sender-1].Address != there {
				t.Errorf("sender at %q passed", b.Senders[e.Sender-1].Address)
			}
			effort.Is(t, e.SerializerId, 0, "serializer passed")
		}
	})
}
