package cluster

import (
	"net"
	"strconv"

	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
)

// topology is the library's ClusterProvider. All that the library is told is that a
// member is gone, so that it ends the connection; it is never given a list of members,
// because its list of those that left is written and read without a lock. Placement
// does not use it.
type topology struct {
	ready     chan struct{} // closed when the library has started
	cluster   *pcluster.Cluster
	addresses map[uuid.UUID]string // of the members that were seen last, by session
}

func newTopology() *topology {
	return &topology{ready: make(chan struct{}), addresses: map[uuid.UUID]string{}}
}

// StartMember implements the library's ClusterProvider.
func (t *topology) StartMember(c *pcluster.Cluster) error {
	t.cluster = c
	host, port, err := c.ActorSystem.GetHostPort()
	if err != nil {
		return err
	}
	c.MemberList.UpdateClusterTopology(pcluster.Members{{
		Id: c.ActorSystem.ID, Host: host, Port: int32(port), Kinds: c.GetClusterKinds(),
	}})
	close(t.ready)
	return nil
}

// StartClient implements the library's ClusterProvider; this house has no clients.
func (t *topology) StartClient(c *pcluster.Cluster) error { return t.StartMember(c) }

// Shutdown implements the library's ClusterProvider.
func (t *topology) Shutdown(bool) error { return nil }

// tell ends the connections to members that gossip does not see any more. One goroutine.
func (t *topology) tell(members []gossip.Member, self uuid.UUID) {
	addresses := make(map[uuid.UUID]string, len(members))
	for _, m := range members {
		if m.Session != self {
			addresses[m.Session] = m.Actors
		}
	}
	for session, address := range t.addresses {
		if _, here := addresses[session]; !here {
			t.cluster.ActorSystem.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: address})
		}
	}
	t.addresses = addresses
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}
