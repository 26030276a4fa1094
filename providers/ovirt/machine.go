package ovirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

const (
	providerIDPrefix = Name + "://"
	// earlierPrefix begins the provider IDs of the controller that succeeded the one in Kubernetes.
	earlierPrefix = "ovirt-cloud-provider://"
)

var validUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// vm holds the fields of a virtual machine that we use.
type vm struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	FQDN   string `json:"fqdn"`
	Status string `json:"status"`
	Detail string `json:"status_detail"`
	// Host is shown only to administrators, and only while the machine runs.
	Host         *ref `json:"host"`
	Cluster      *ref `json:"cluster"`
	InstanceType *ref `json:"instance_type"`
	NICs         struct {
		NIC []nic `json:"nic"`
	} `json:"nics"`
	// Tags are shown only where they are asked for.
	Tags struct {
		Tag []struct {
			Name string `json:"name"`
		} `json:"tag"`
	} `json:"tags"`

	// knownAs are the possible node names of the machine, from a listing; see assignNames.
	knownAs []string
}

type ref struct {
	ID string `json:"id"`
}

func (r *ref) id() string {
	if r == nil {
		return ""
	}
	return strings.ToLower(r.ID)
}

type nic struct {
	Name    string `json:"name"`
	MAC     mac    `json:"mac"`
	Devices struct {
		Device []device `json:"reported_device"`
	} `json:"reported_devices"`
}

type mac struct {
	Address string `json:"address"`
}

// device is a network interface as the guest agent reports it.
type device struct {
	Name string `json:"name"`
	Type string `json:"type"`
	MAC  mac    `json:"mac"`
	IPs  struct {
		IP []struct {
			Address string `json:"address"`
		} `json:"ip"`
	} `json:"ips"`
}

// String returns the machine's name for messages.
func (v vm) String() string { return v.Name + " (" + v.ID + ")" }

// parseProviderID returns the ID of the virtual machine in a provider ID, in any controller's form.
func parseProviderID(text string) (string, error) {
	rest, ours := strings.CutPrefix(text, earlierPrefix)
	if !ours {
		if rest, ours = strings.CutPrefix(text, providerIDPrefix); ours {
			rest = strings.TrimPrefix(rest, "/")
		}
	}
	id := strings.ToLower(rest)
	if !ours || !validUUID.MatchString(id) {
		return "", fmt.Errorf("provider ID %q is not of the form %s<UUID>, such as %s123e4567-e89b-42d3-a456-426614174000", text, providerIDPrefix, providerIDPrefix)
	}
	return id, nil
}

// instanceKey returns the key of the instance that a provider ID names. An ID with one of our prefixes is ours even if it names no
// instance.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return id
	}
	if id := strings.ToLower(providerID); validUUID.MatchString(id) {
		return id
	}
	if strings.HasPrefix(providerID, providerIDPrefix) || strings.HasPrefix(providerID, earlierPrefix) {
		return providerID
	}
	return ""
}

// stateOf says whether a status proves that nothing runs, and whether it is known. An unknown status may mean a running machine: with a
// wrong answer its disks would be detached.
func stateOf(status string) (state nodes.State, known bool) {
	switch status {
	case "down", "suspended", "image_locked":
		return nodes.ShutDown, true
	case "up", "powering_up", "reboot_in_progress", "migrating", "wait_for_launch", "restoring_state", "saving_state", "powering_down",
		"paused", "unknown", "not_responding", "unassigned":
		return nodes.Existing, true
	}
	return nodes.Existing, false
}

// maxStatus bounds the length of a remembered unknown status.
const maxStatus = 64

// newStates remembers which unknown ones were logged.
type newStates struct{ logged sync.Map }

// stateFor maps the status of a virtual machine. A machine without one has an illegal image; it does not run if it has no host either and
// the user sees hosts.
func (n *newStates) stateFor(v vm, seesHosts bool) nodes.State {
	state, known := stateOf(v.Status)
	if v.Status == "" && v.Host.id() == "" && seesHosts {
		return nodes.ShutDown
	}
	if !known && v.Status != "" {
		if _, before := n.logged.LoadOrStore(v.Status[:min(len(v.Status), maxStatus)], true); !before {
			klog.InfoS("A virtual machine has a status that is not known; it counts as running", "machine", v.String(), "status", v.Status)
		}
	}
	return state
}

// label turns a name into a label's value: illegal characters become "-". An empty result is replaced by the ID.
func label(name, id string) string {
	text := nodes.LabelValue(name)
	if text == "" {
		return id
	}
	return text
}

var errNoObject = errors.New("is no object")

// UnmarshalJSON refuses null, which has no meaning.
func (v *vm) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return errNoObject
	}
	type plain vm
	return json.Unmarshal(data, (*plain)(v))
}

// listing is a listing of virtual machines. An empty one is an empty object; any other object without the list does not come from the
// engine.
type listing []vm

// UnmarshalJSON implements json.Unmarshaler.
func (l *listing) UnmarshalJSON(data []byte) error {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil || len(parts) == 0 {
		return err
	}
	if parts["vm"] == nil {
		return errNoObject
	}
	return json.Unmarshal(parts["vm"], (*[]vm)(l))
}

// assignNames assigns possible node names to the virtual machines of a listing. A name belongs to the machine that has it exactly, else
// ignoring case, else as the FQDN that its guest reports: a guest cannot take the name of another machine.
func assignNames(all []vm) {
	exact, folded := map[string]bool{}, map[string]bool{}
	for _, v := range all {
		exact[v.Name], folded[strings.ToLower(v.Name)] = true, true
	}
	for i := range all {
		v := &all[i]
		v.knownAs = []string{v.Name}
		if lower := strings.ToLower(v.Name); lower != v.Name && !exact[lower] {
			v.knownAs = append(v.knownAs, lower)
		}
		if fqdn := strings.ToLower(v.FQDN); fqdn != "" && !folded[fqdn] {
			v.knownAs = append(v.knownAs, fqdn)
		}
	}
}

// names returns the possible node names of a virtual machine. One that was read alone has only its own name.
func (v vm) names() []string {
	if v.knownAs == nil {
		return []string{strings.ToLower(v.Name)}
	}
	return v.knownAs
}
