package nodelabels

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// TagManager is the field manager of labels from tags, and so the record of them.
	TagManager = "anyccm-node-tags"
	// autoscalerPreset stands for the rule for tags by which Cluster Autoscaler knows the labels of a node that does not run yet.
	autoscalerPreset = "cluster-autoscaler"
	autoscalerRule   = "k8s.io/cluster-autoscaler/node-template/label/*=*"

	// maxTagLabels bounds the labels that a Node gets from tags.
	maxTagLabels = 50

	restriction = v1.LabelNamespaceNodeRestriction + "/"
	roles       = "node-role.kubernetes.io/"
)

// Rules say which tags of instances become labels of their Nodes. The zero value has none.
type Rules struct {
	rules []rule
	// selected are the labels of --node-selector, by which a Node counts as this program's, and clouds those that mean something to the
	// cloud.
	selected, clouds sets.Set[string]
}

// Any reports whether there are rules.
func (r Rules) Any() bool { return len(r.rules) > 0 }

// rule gives the tag a label. With prefix, both are beginnings, followed by the same text.
type rule struct {
	tag, label string
	prefix     bool
}

// fault is why tags give no label.
type fault struct{ label, why string }

// ParseRules reads rules of the form tag=label, tags*=labels* or autoscalerPreset, and reports all faults together. No tag gives a label
// of the node selector or of the cloud.
func ParseRules(texts []string, nodeSelector string, clouds []string) (Rules, error) {
	r := Rules{selected: sets.New[string](), clouds: sets.New(clouds...)}
	if selector, err := klabels.Parse(nodeSelector); err == nil { // or the guard reports it
		requirements, _ := selector.Requirements()
		for _, one := range requirements {
			r.selected.Insert(one.Key())
		}
	}
	problems := make([]error, 0, len(texts))
	for _, text := range texts {
		one, err := parseRule(text)
		if err == nil && slices.Contains(r.rules, one) {
			err = errors.New("it is there twice")
		}
		if err == nil {
			r.rules = append(r.rules, one)
			err = r.check(one)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("--node-labels-from-tags: %q: %w", text, err))
		}
	}
	return r, errors.Join(problems...)
}

// parseRule splits a rule at its last "=", because no label has one.
func parseRule(text string) (rule, error) {
	if text == autoscalerPreset {
		text = autoscalerRule
	}
	at := strings.LastIndexByte(text, '=')
	if at < 1 || at == len(text)-1 {
		return rule{}, errors.New("use tag=label, tags*=labels* or " + autoscalerPreset)
	}
	tag, tags := strings.CutSuffix(text[:at], "*")
	label, prefix := strings.CutSuffix(text[at+1:], "*")
	if tags != prefix {
		return rule{}, errors.New("either both end in *, or neither")
	}
	return rule{tag, label, prefix}, nil
}

// check refuses a rule that could never give a legal label.
func (r Rules) check(one rule) error {
	if !one.prefix {
		if why := r.refusal(one.label); why != "" {
			return errors.New(why)
		}
		return nil
	}
	if one.label == "" {
		return nil
	}
	if one.label == roles {
		return errors.New("name each role, such as " + roles + "worker")
	}
	if why := r.refusal(one.label + "x"); why != "" {
		return errors.New(why)
	}
	return nil
}

// refusal returns why no tag may give a label, or "".
func (r Rules) refusal(key string) string {
	domain, name, _ := strings.Cut(key, "/")
	switch {
	case len(validation.IsQualifiedName(key)) > 0:
		return fmt.Sprintf("%q is no legal key of a label", key)
	case strings.HasPrefix(key, "topology.") && name != "":
		return fmt.Sprintf("the label %s belongs to the cloud and its drivers", key)
	case r.selected.Has(key):
		return fmt.Sprintf("the label %s is in --node-selector, so it says which Nodes are managed", key)
	case r.clouds.Has(key):
		return fmt.Sprintf("the label %s means something to this cloud", key)
	case domain+"/" == restriction:
		return ""
	case domain+"/" == roles && name != "control-plane" && name != "master" && r.lists(key):
		return ""
	case kubernetesNames.MatchString(key):
		return fmt.Sprintf("the label %s is one of Kubernetes; only %s* and roles that a rule names, besides that of the control plane, may come from tags",
			key, restriction)
	}
	return ""
}

// lists reports whether a rule names a label as a whole.
func (r Rules) lists(key string) bool {
	return slices.ContainsFunc(r.rules, func(one rule) bool { return !one.prefix && one.label == key })
}

// mayGive reports whether some tag may give a label.
func (r Rules) mayGive(key string) bool {
	gives := func(one rule) bool { return one.label == key || (one.prefix && strings.HasPrefix(key, one.label)) }
	return slices.ContainsFunc(r.rules, gives) && r.refusal(key) == ""
}

// match returns the labels that tags give, and why others give none.
func (r Rules) match(tags map[string]string) (given map[string]string, faults []fault) {
	sources := map[string]sets.Set[string]{}
	for tag := range tags {
		for _, one := range r.rules {
			rest, matches := strings.CutPrefix(tag, one.tag)
			if !matches || (rest == "") == one.prefix {
				continue
			}
			key := one.label + rest
			if sources[key] == nil {
				sources[key] = sets.New[string]()
			}
			sources[key].Insert(tag)
		}
	}
	given = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(sources)) {
		from := sets.List(sources[key])
		value := tags[from[0]]
		why := r.refusal(key)
		switch {
		case why != "":
			why = fmt.Sprintf("tag %q: %s", from[0], why)
		case len(from) > 1:
			why = fmt.Sprintf("%s would come from the tags %q", key, from)
		case len(validation.IsValidLabelValue(value)) > 0:
			why = fmt.Sprintf("%q of tag %q is no legal value of a label", value, from[0])
		case len(given) == maxTagLabels:
			why = fmt.Sprintf("%s would be more than %d labels", key, maxTagLabels)
		default:
			given[key] = value
			continue
		}
		faults = append(faults, fault{key, why})
	}
	return given, faults
}

// tagLabels holds the labels that follow from an instance's tags.
type tagLabels struct {
	labels map[string]string
	// seen are the labels that tags of the instance gave since this program started.
	seen sets.Set[string]
	// unclear are labels about which the tags say nothing clear; they stay as they are.
	unclear sets.Set[string]
	// faults are for the event; "" if there are none.
	faults string
}

// evaluate returns what the tags of an instance give to which the cloud itself gives labels.
func (r Rules) evaluate(tags, cloud map[string]string) tagLabels {
	given, faults := r.match(tags)
	for _, key := range slices.Sorted(maps.Keys(cloud)) {
		if _, both := given[key]; both {
			delete(given, key)
			faults = append(faults, fault{key, "the cloud itself gives " + key})
		}
	}
	t := tagLabels{labels: given, seen: sets.KeySet(given), unclear: sets.New[string]()}
	texts := make([]string, len(faults))
	for i, f := range faults {
		t.unclear.Insert(f.label)
		texts[i] = f.why
	}
	t.faults = strings.Join(texts, "; ")
	return t
}

// isProtected reports whether no kubelet may change a label. A kubelet can forge the record that we set it, and so have us remove it.
func isProtected(key string) bool {
	return strings.HasPrefix(key, restriction) || strings.HasPrefix(key, roles)
}

// tagDifferences returns the sorted labels in which a Node seems to differ from what tags say: it may also have them from somebody else.
// A protected label that is left over counts only where its tag was seen.
func (r Rules) tagDifferences(node *v1.Node, t tagLabels) (keys []string) {
	for key, value := range t.labels {
		if current, exists := node.Labels[key]; !exists || current != value {
			keys = append(keys, key)
		}
	}
	for key := range node.Labels {
		if _, still := t.labels[key]; !still && !t.unclear.Has(key) && r.mayGive(key) && (!isProtected(key) || t.seen.Has(key)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// decideTags compares a Node, read with its managed fields, with its instance's tags. What anybody else manages stays.
func (r Rules) decideTags(node *v1.Node, t tagLabels) decision {
	managers := labelManagers(node)
	isOthers := func(key string) bool {
		return slices.ContainsFunc(managers[key], func(m string) bool { return m != TagManager })
	}
	patch, changes := map[string]string{}, []string{}
	for key, writers := range managers { // an apply without what its manager owns would remove it
		if value, has := node.Labels[key]; has && slices.Contains(writers, TagManager) {
			patch[key] = value
		}
	}
	for _, key := range r.tagDifferences(node, t) {
		current, exists := node.Labels[key]
		value, gives := t.labels[key]
		_, ours := patch[key]
		if exists && (!ours || isOthers(key)) {
			continue
		}
		before, after := "none", "none"
		if exists {
			before = strconv.Quote(current)
		}
		delete(patch, key)
		if gives {
			patch[key], after = value, strconv.Quote(value)
		}
		changes = append(changes, fmt.Sprintf("%s: %s → %s", key, before, after))
	}
	if len(changes) == 0 {
		return decision{}
	}
	return decision{patch: patch, corrections: changes}
}
