// Package nodelabels corrects labels of Nodes whose instances change in the cloud. The framework writes them only once.
package nodelabels

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	// Manager is the field manager of corrections, and so the record of what this program set.
	Manager = "anyccm-node-labels"
	// Initializer is the field manager of the framework's controller of Nodes in this program, which tells it from other controllers.
	Initializer = "anyccm-node-controller"
	// kubelet restores the labels of --node-labels at each start.
	kubelet = "kubelet"
)

// betaName returns the older name of a label. The framework copies its value over the newer label at every change of a Node.
func betaName(key string) string {
	switch key {
	case v1.LabelInstanceTypeStable:
		return v1.LabelInstanceType
	case v1.LabelTopologyZone:
		return v1.LabelFailureDomainBetaZone
	case v1.LabelTopologyRegion:
		return v1.LabelFailureDomainBetaRegion
	}
	return ""
}

// kubernetesNames matches additional labels that the framework drops.
var kubernetesNames = regexp.MustCompile(`(^|\.)(kubernetes|k8s)\.io/`)

// cloudLabels returns the labels that follow from metadata. A fact that is missing gives no label, because it may only be missing in this
// answer.
func cloudLabels(m *cloudprovider.InstanceMetadata) map[string]string {
	labels := map[string]string{}
	for key, value := range m.AdditionalLabels {
		if !kubernetesNames.MatchString(key) {
			labels[key] = value
		}
	}
	labels[v1.LabelInstanceTypeStable], labels[v1.LabelTopologyZone], labels[v1.LabelTopologyRegion] = m.InstanceType, m.Zone, m.Region
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}

// names returns the names under which a Node has a label. A beta label that it lacks is not made again.
func names(node *v1.Node, key string) []string {
	beta := betaName(key)
	if _, exists := node.Labels[beta]; exists && beta != "" {
		return []string{beta, key}
	}
	return []string{key}
}

// differences returns the sorted labels that a Node has with another value than the cloud's.
func differences(node *v1.Node, cloud map[string]string) (keys []string) {
	for key, value := range cloud {
		differs := func(name string) bool {
			current, exists := node.Labels[name]
			return exists && current != value
		}
		if slices.ContainsFunc(names(node, key), differs) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// decision holds the changes of a Node's labels.
type decision struct {
	// patch has all labels of the one apply, also unchanged ones of this program; nil means no write.
	patch map[string]string
	// corrections and topology describe the changes that are written, and those that are only reported.
	corrections, topology []string
}

// decide compares a Node, read with its managed fields, with the cloud's labels. Labels in updates changed in the cloud while this program
// looked. Others are corrected only if this program wrote them: what another controller left behind is for the operator to see first.
func decide(node *v1.Node, cloud map[string]string, updates map[string]bool, writeTopology bool) decision {
	managers := labelManagers(node)
	var d decision
	patch := map[string]string{}
	for _, key := range differences(node, cloud) {
		aliases := names(node, key)
		isOurs := func(name string) bool {
			return slices.Contains(managers[name], Manager) || slices.Contains(managers[name], Initializer)
		}
		isKubelets := func(name string) bool { return slices.ContainsFunc(managers[name], kubelets(managers)) }
		// Each name must be ours: the framework copies a beta label that somebody set by hand over the label that it wrote itself.
		foreign := !updates[key] && slices.ContainsFunc(aliases, func(name string) bool { return !isOurs(name) })
		if foreign || slices.ContainsFunc(aliases, isKubelets) {
			continue
		}
		text := fmt.Sprintf("%s: %s → %s", key, node.Labels[aliases[0]], cloud[key])
		if (key == v1.LabelTopologyZone || key == v1.LabelTopologyRegion) && !writeTopology {
			d.topology = append(d.topology, text)
			continue
		}
		d.corrections = append(d.corrections, text)
		for _, name := range aliases {
			patch[name] = cloud[key]
		}
	}
	if len(patch) == 0 {
		return d
	}
	d.patch = patch
	for name, writers := range managers { // an apply without what its manager owns would remove it
		value, has := node.Labels[name] // a forged record may name any other label
		if _, exists := patch[name]; has && !exists && slices.Contains(writers, Manager) {
			patch[name] = value
		}
	}
	return d
}

// report holds what is told of a Node whose labels are not all written.
type report struct {
	// topology describes changes of zone and region that are not written; forged is the manager of a forged record.
	topology, forged string
}

// reportOn returns what is told of a Node about the decisions on its labels of the cloud and on those from tags.
func reportOn(node *v1.Node, d, tags decision) report {
	r := report{topology: strings.Join(d.topology, ", ")}
	switch {
	case tags.patch != nil && forgedRecord(node, TagManager):
		r.forged = TagManager
	case d.patch != nil && forgedRecord(node, Manager):
		r.forged = Manager
	}
	return r
}

// kubelets returns whether a manager is a kubelet, which sets the label of the host's name. Some programs contain one.
func kubelets(managers map[string][]string) func(string) bool {
	return func(m string) bool { return m == kubelet || slices.Contains(managers[v1.LabelHostname], m) }
}

// labelManagers returns the field managers of each label of a Node.
func labelManagers(node *v1.Node) map[string][]string {
	managers := map[string][]string{}
	for _, entry := range node.ManagedFields {
		var fields struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for field := range fields.Metadata.Labels {
			if len(field) > 2 {
				managers[field[2:]] = append(managers[field[2:]], entry.Manager)
			}
		}
	}
	return managers
}

// forgedRecord reports whether a manager of this program's owns more than labels. A kubelet may write under any manager's name; our next
// apply would then remove what it is not allowed to remove itself, such as taints.
func forgedRecord(node *v1.Node, manager string) bool {
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Manager != manager || entry.FieldsV1 == nil {
			return false
		}
		var fields map[string]map[string]json.RawMessage
		err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields)
		delete(fields["f:metadata"], "f:labels")
		rest := len(fields["f:metadata"])
		delete(fields, "f:metadata")
		return err != nil || rest+len(fields) > 0
	})
}
