package keepalived

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Keys of the ConfigMap of pools, as with kube-vip's own controller. The prefix is followed by a namespace, or global.
const (
	keyCIDR      = "cidr-"
	keyRange     = "range-"
	keyShare     = "allow-share-"
	keyInterface = "interface-"
	keyOrder     = "search-order"
	keySkipEnds  = "skip-end-ips-in-cidr"

	global     = "global"
	orderDown  = "desc"
	dynamicAll = "0.0.0.0/32"
)

var (
	errNoPool    = errors.New("there is no pool of addresses")
	errEmptyPool = errors.New("no address can be given")
)

// pools maps namespaces to the pools of their Services.
type pools struct {
	// where names the ConfigMap, for messages.
	where string
	// data are its keys; nil if it does not exist.
	data map[string]string
	// cidr is the pool of namespaces without a key in the ConfigMap; "" without one.
	cidr string
	// err: the ConfigMap could not be read.
	err error
}

// poolOf returns the pool of a namespace.
func (p pools) poolOf(namespace string) (pool, error) {
	if p.err != nil {
		return pool{}, p.err
	}
	for _, key := range []string{keyCIDR + namespace, keyCIDR + global, keyRange + namespace, keyRange + global} {
		text, ok := p.data[key]
		if !ok {
			continue
		}
		if strings.TrimSpace(text) == "" {
			return pool{}, fmt.Errorf("%w: key %s of ConfigMap %s is empty; write addresses, or remove it", errEmptyPool, key, p.where)
		}
		return p.parse(key, text)
	}
	if p.cidr == "" {
		return pool{}, fmt.Errorf("%w: ConfigMap %s has no key %s%s or %s%s", errNoPool, p.where, keyCIDR, namespace, keyCIDR, global)
	}
	spans, err := parseSpans(p.cidr, true)
	if err != nil {
		return pool{}, fmt.Errorf("%s: %w", envServiceCIDR, err)
	}
	return pool{key: envServiceCIDR, text: p.cidr, spans: spans, whole: true}, nil
}

func (p pools) parse(key, text string) (pool, error) {
	spans, err := parseSpans(text, p.data[keySkipEnds] == "true")
	if err != nil {
		return pool{}, fmt.Errorf("key %s of ConfigMap %s: %w", key, p.where, err)
	}
	one := pool{key: key + " of ConfigMap " + p.where, text: text, spans: spans, down: p.data[keyOrder] == orderDown}
	parts := strings.Split(text, ",")
	one.dynamic = slices.ContainsFunc(parts, func(part string) bool { return strings.TrimSpace(part) == dynamicAll })
	return one, nil
}

// shares reports whether Services of a namespace may share addresses.
func (p pools) shares(namespace string) bool {
	text, ok := p.data[keyShare+namespace]
	if !ok {
		text = p.data[keyShare+global]
	}
	yes, err := strconv.ParseBool(text)
	return err == nil && yes
}

// networkInterface returns the interface for the addresses of a namespace; "" without a setting.
func (p pools) networkInterface(namespace string) string {
	if name, ok := p.data[keyInterface+namespace]; ok {
		return name
	}
	return p.data[keyInterface+global]
}
