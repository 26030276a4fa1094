package expectations

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// Setup is how a test begins: in the simulated cloud, and how the program runs.
type Setup struct {
	// Prepare makes things in the simulated cloud before there are instances.
	Prepare []Step `json:"prepare"`
	// Values are further values of the chart, Arguments and Environment those of the program.
	Values      map[string]any    `json:"values"`
	Arguments   []string          `json:"arguments"`
	Environment map[string]string `json:"environment"`
}

// Costs are the calls that a cloud may be asked for at most. Writes are exact.
type Costs struct {
	// Nodes are kinds of clusters with 1,000 nodes, by name.
	Nodes map[string]NodeCosts `json:"nodes"`
	// Services is the cost of 20 Services of two ports.
	Services ServiceCosts `json:"services"`
}

// NodeCosts are those of 1,000 nodes.
type NodeCosts struct {
	Setup `json:",inline"`
	// Start are the reads until all nodes are initialised, where this takes seconds (StartWithin), and Writes the writes.
	Start  int `json:"start"`
	Writes int `json:"writes"`
	// Minute are the reads of a minute in which the addresses of all nodes are looked at, and 50 of them are not ready.
	Minute int `json:"minute"`
	// Once are reads that begin something a while after the start, and come beside those of a minute.
	Once int `json:"once"`
	// PodCIDRs is how many ranges each node gets.
	PodCIDRs int `json:"podCIDRs"`
}

// StartWithin are the reads until all nodes are initialised where this took so long. What arrives slowly outlives listings: they are
// renewed as in any other minute.
func (n NodeCosts) StartWithin(took time.Duration) int {
	if took <= quickStart {
		return n.Start
	}
	return n.Start + int(float64(n.Minute)*took.Minutes())
}

// quickStart is longer than a thousand nodes take on an idle machine with two processors.
const quickStart = 20 * time.Second

// ServiceCosts are those of 20 Services of two ports.
type ServiceCosts struct {
	Setup `json:",inline"`
	// Activation is how long the simulated cloud works on each change that it makes later; 1s where nothing is said.
	Activation string `json:"activation"`
	// Annotations are those of the Services.
	Annotations map[string]string `json:"annotations"`
	// Unlimited is the environment in which the program does without its own limits on calls, where the cloud has such an option.
	Unlimited map[string]string `json:"unlimited"`
	// Join is the cost of a node that joins them.
	Join Cost `json:"join"`
	// Unchanged are the reads of one Service that is looked at without a change.
	Unchanged int `json:"unchanged"`
	// Restart are the reads until all are looked at after a restart.
	Restart int `json:"restart"`
}

// Cost is a number of calls. PerSecond are further reads for each second that the cloud works on the writes.
type Cost struct {
	Reads     int     `json:"reads"`
	Writes    int     `json:"writes"`
	PerSecond float64 `json:"perSecond"`
}

// MostReads writes the reads, and what each second that the cloud works adds to them.
func (c Cost) MostReads() string {
	if c.PerSecond == 0 {
		return strconv.Itoa(c.Reads)
	}
	return fmt.Sprintf("%d and %g a second", c.Reads, c.PerSecond)
}

// PodRanges is one way in which nodes get ranges for their pods.
type PodRanges struct {
	Setup `json:",inline"`
	// Within are the networks that the ranges of each node lie in, in their order, and Bits their lengths.
	Within []string `json:"within"`
	Bits   []int    `json:"bits"`
	// Networked is set where nodes are told that they have their network, for the cloud itself routes the ranges.
	Networked bool `json:"networked"`
	// Own is set where a range belongs to the instance, so that a Node that registers again gets the same.
	Own bool `json:"own"`
}

// Controller is the expected effect of one of a cloud's further controllers.
type Controller struct {
	Setup `json:",inline"`
	// State is the simulated cloud's expected content after the controller has worked on two nodes; NodeLabels are keys of the labels on
	// both.
	State      map[string]any `json:"state"`
	NodeLabels []string       `json:"nodeLabels"`
	// None says why there is no state.
	None string `json:"none"`
}

// problems lists what the costs and controllers lack; path is the file to name.
func (c Cloud) problems(path string, p registry.Provider) error {
	var all []error
	missing := func(bad bool, what string) {
		if bad {
			all = append(all, fmt.Errorf("%s: %s is missing", path, what))
		}
	}
	missing(p.Features.Instances == registry.Done && len(c.Costs.Nodes) == 0, "costs.nodes")
	for _, name := range slices.Sorted(maps.Keys(c.Costs.Nodes)) {
		missing(c.Costs.Nodes[name].Start == 0 || c.Costs.Nodes[name].Minute == 0, "start or minute in costs.nodes."+name)
	}
	if s := c.Costs.Services; p.Features.Instances == registry.Done && p.Features.LoadBalancers == registry.Done {
		missing(s.Join.Writes == 0 || s.Restart == 0, "join.writes or restart in costs.services")
	}
	for _, name := range slices.Sorted(maps.Keys(c.PodRanges)) {
		r := c.PodRanges[name]
		missing(len(r.Within) == 0 || len(r.Within) != len(r.Bits), "within or bits in podRanges."+name)
	}
	for _, further := range p.Controllers {
		one := c.Controllers[further.Name]
		missing(further.Unneeded == "" && !further.PodRanges && len(one.State) == 0 && one.None == "", "controllers."+further.Name+".state")
		missing(further.PodRanges && len(c.PodRanges) == 0, "podRanges")
	}
	return errors.Join(all...)
}
