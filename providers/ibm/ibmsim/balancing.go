package ibmsim

import (
	"encoding/json"
	"net/http"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// balancing is what load balancers take.
type balancing struct{}

func (*Sim) prepare() {}

func (*Sim) serveBalancing(*http.Request, []string) (int, any, *refusal) {
	return 0, nil, refuse(http.StatusNotFound, "not_found", "there is no such path")
}

// State implements simkit.Cloud.
func (s *Sim) State() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simkit.Snapshot(map[string]any{"instances": s.instances})
}

// Holdings implements simkit.Cloud.
func (*Sim) Holdings() []string { return []string{} }
