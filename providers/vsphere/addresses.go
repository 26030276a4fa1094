package vsphere

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
)

// candidate is an address of a virtual machine, with its network.
type candidate struct {
	ip      netip.Addr
	network string
}

// errIncomplete marks data that the guest has not reported yet.
var errIncomplete = errors.New("is VMware Tools running in it?")

// addresses returns the addresses of a node in the order of vSphere's own controller: host name, then for each family the internal and the
// external one.
func (n nodesConfig) addresses(m machine, node string, families []v1.IPFamily) ([]v1.NodeAddress, error) {
	if m.HostName == "" {
		return nil, fmt.Errorf("virtual machine %s reports no host name; %w", m, errIncomplete)
	}
	all, err := n.listCandidates(m, node)
	if err != nil {
		return nil, err
	}
	list := []v1.NodeAddress{{Type: v1.NodeHostName, Address: m.HostName}}
	add := func(kind v1.NodeAddressType, a *netip.Addr) {
		if a == nil {
			return
		}
		if one := (v1.NodeAddress{Type: kind, Address: a.String()}); !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	for _, family := range families {
		internal, external := n.chooseAddresses(all, family)
		if internal == nil && external == nil {
			return nil, fmt.Errorf("node %s has no address of %s: virtual machine %s has %s; check the section nodes "+
				"and ipFamily of the cloud config", node, family, m, describeCandidates(all))
		}
		add(v1.NodeInternalIP, internal)
		add(v1.NodeExternalIP, external)
	}
	return list, nil
}

func describeCandidates(all []candidate) string {
	texts := []string{}
	for _, c := range all {
		texts = append(texts, fmt.Sprintf("%s (network %q)", c.ip, c.network))
	}
	if len(texts) == 0 {
		return "no address"
	}
	return strings.Join(texts, ", ")
}

// listCandidates returns the usable addresses in the order of the network interfaces, static ones of the guest's configuration first.
func (n nodesConfig) listCandidates(m machine, node string) ([]candidate, error) {
	if len(m.NICs) == 0 {
		return nil, fmt.Errorf("virtual machine %s reports no network interface; %w", m, errIncomplete)
	}
	var all []candidate
	networks := []string{}
	for _, nic := range m.NICs {
		if nic.DeviceConfigId == -1 {
			continue // created inside the guest, such as for pods
		}
		networks = append(networks, nic.Network)
		for _, text := range nic.IpAddress {
			if ip, err := netip.ParseAddr(text); err == nil && isUsable(ip.WithZone("")) {
				all = append(all, candidate{ip.WithZone("").Unmap(), nic.Network})
			}
		}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(networks, func(have string) bool { return strings.EqualFold(have, name) })
	}
	if n.InternalNetwork != "" && n.ExternalNetwork != "" && !has(n.InternalNetwork) && !has(n.ExternalNetwork) {
		return nil, fmt.Errorf("node %s has no address: virtual machine %s is in the networks %q, and neither in "+
			"internalVmNetworkName %q nor in externalVmNetworkName %q", node, m, networks, n.InternalNetwork, n.ExternalNetwork)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("node %s has no address: virtual machine %s reports none "+
			"that others can reach; %w", node, m, errIncomplete)
	}
	static, err := staticAddresses(m.Metadata, m.Encoding)
	if err != nil {
		return nil, fmt.Errorf("virtual machine %s: guestinfo.metadata: %w", m, err)
	}
	rank := func(c candidate) int {
		if at := slices.Index(static, c.ip); at >= 0 {
			return at
		}
		return len(static)
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return rank(a) - rank(b) })
	return all, nil
}

func isUsable(ip netip.Addr) bool {
	return !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsLinkLocalMulticast()
}

// chooseAddresses returns the internal and the external address of a family; nil if there is none.
func (n nodesConfig) chooseAddresses(all []candidate, family v1.IPFamily) (internal, external *netip.Addr) {
	without := func(excluded []netip.Prefix) []candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
			return c.ip.Is4() != (family == v1.IPv4Protocol) ||
				slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(c.ip) })
		})
	}
	inside, outside := without(n.ExcludeInternal), without(n.ExcludeExternal)
	internal = pickAddress(inside, n.InternalCIDRs, n.InternalNetwork)
	external = pickAddress(outside, n.ExternalCIDRs, n.ExternalNetwork)
	if internal == nil && external == nil {
		internal, external = firstAddress(inside), firstAddress(outside)
	}
	return internal, external
}

// pickAddress returns the candidate in the first network that has one, or else the first on the named vSphere network.
func pickAddress(all []candidate, prefixes []netip.Prefix, network string) *netip.Addr {
	for _, p := range prefixes {
		for _, c := range all {
			if p.Contains(c.ip) {
				return &c.ip
			}
		}
	}
	for _, c := range all {
		if network != "" && strings.EqualFold(c.network, network) {
			return &c.ip
		}
	}
	return nil
}

func firstAddress(all []candidate) *netip.Addr {
	if len(all) == 0 {
		return nil
	}
	return &all[0].ip
}

// staticAddresses returns the addresses in cloud-init's network configuration, in its order.
func staticAddresses(metadata, encoding string) ([]netip.Addr, error) {
	if metadata == "" || encoding != "base64" {
		return nil, nil
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(metadata))
	if err != nil {
		return nil, errors.New("is not in base64, as its encoding says")
	}
	var document struct {
		Network yaml.Node `yaml:"network"`
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, errors.New("is not YAML")
	}
	network := document.Network
	if network.Kind == 0 {
		return nil, nil
	}
	var coded struct {
		Encoding string `yaml:"network.encoding"`
	}
	if err := yaml.Unmarshal(text, &coded); err == nil && coded.Encoding != "" {
		inner, err := decodeNetwork(network.Value, coded.Encoding)
		if err != nil {
			return nil, err
		}
		network = yaml.Node{}
		if err := yaml.Unmarshal(inner, &network); err != nil {
			return nil, errors.New("network is not YAML")
		}
	}
	return parseEthernets(&network)
}

// maxNetwork bounds a compressed configuration after decompression.
const maxNetwork = 1 << 20

func decodeNetwork(text, encoding string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("network is not in base64, as network.encoding says")
	}
	switch encoding {
	case "base64", "b64":
		return raw, nil
	case "gzip+base64", "gz+b64":
		r, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, errors.New("network is not compressed, as network.encoding says")
		}
		return io.ReadAll(io.LimitReader(r, maxNetwork)) //nolint:wrapcheck // a reader in memory
	}
	return nil, fmt.Errorf("network.encoding is %q; use base64 or gzip+base64", encoding)
}

// parseEthernets walks the document in its order, which a Go map would lose.
func parseEthernets(document *yaml.Node) (all []netip.Addr, err error) {
	node := document
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	pairs(node, func(key string, value *yaml.Node, ok bool) {
		if !ok || key != "ethernets" {
			return
		}
		pairs(value, func(_ string, nic *yaml.Node, ok bool) {
			var one struct {
				Addresses []string `yaml:"addresses"`
			}
			if !ok || nic.Decode(&one) != nil {
				err = errors.New("network has ethernets that are none")
				return
			}
			for _, text := range one.Addresses {
				address, _, _ := strings.Cut(text, "/")
				if ip, err := netip.ParseAddr(address); err == nil {
					all = append(all, ip.Unmap())
				}
			}
		})
	})
	return all, err
}
