package guard

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

var reported = []v1.NodeAddress{
	{Type: v1.NodeHostName, Address: "n"},
	{Type: v1.NodeInternalIP, Address: "10.0.0.1"},
	{Type: v1.NodeInternalIP, Address: "fd00::1"},
	{Type: v1.NodeExternalIP, Address: "198.18.0.1"},
	{Type: v1.NodeExternalIP, Address: "2001:db8::1"},
	{Type: v1.NodeExternalDNS, Address: "n.example.com"},
}

func texts(all []v1.NodeAddress) string {
	var list []string
	for _, a := range all {
		list = append(list, a.Address)
	}
	return strings.Join(list, " ")
}

func TestAddressPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy      AddressPolicy
		annotations map[string]string
		want        string
		refused     string
	}{
		"as reported":    {AddressPolicy{}, nil, "n 10.0.0.1 fd00::1 198.18.0.1 2001:db8::1 n.example.com", ""},
		"IPv4 alone":     {AddressPolicy{Families: []string{"ipv4"}}, nil, "n 10.0.0.1 198.18.0.1 n.example.com", ""},
		"IPv6 first":     {AddressPolicy{Families: []string{"ipv6", "ipv4"}}, nil, "n fd00::1 10.0.0.1 2001:db8::1 198.18.0.1 n.example.com", ""},
		"IPv4 first":     {AddressPolicy{Families: []string{"ipv4", "ipv6"}}, nil, "n 10.0.0.1 fd00::1 198.18.0.1 2001:db8::1 n.example.com", ""},
		"inside":         {AddressPolicy{Include: []string{"10.0.0.0/8", "2001:db8::/32"}}, nil, "n 10.0.0.1 2001:db8::1 n.example.com", ""},
		"outside":        {AddressPolicy{Exclude: []string{"198.18.0.0/15"}}, nil, "n 10.0.0.1 fd00::1 2001:db8::1 n.example.com", ""},
		"exclusion wins": {AddressPolicy{Include: []string{"10.0.0.0/8", "fd00::/8"}, Exclude: []string{"10.0.0.0/24"}}, nil, "n fd00::1 n.example.com", ""},
		"the Node overrides": {
			AddressPolicy{Families: []string{"ipv4"}},
			map[string]string{AnnotationAddressFamilies: "ipv6", AnnotationAddressExclude: " fd00::/8 "},
			"n 2001:db8::1 n.example.com", "",
		},
		"the Node lifts": {
			AddressPolicy{Families: []string{"ipv4"}, Exclude: []string{"::/0"}},
			map[string]string{AnnotationAddressFamilies: "", AnnotationAddressExclude: ""},
			"n 10.0.0.1 fd00::1 198.18.0.1 2001:db8::1 n.example.com", "",
		},
		"nothing is left":          {AddressPolicy{Include: []string{"192.0.2.0/24"}}, nil, "", "no address of node n is left: the cloud reports Hostname n, InternalIP 10.0.0.1"},
		"senseless annotation":     {AddressPolicy{}, map[string]string{AnnotationAddressInclude: "10.0.0.1"}, "", `annotation anyccm.io/node-address-include: "10.0.0.1" is not a network`},
		"unknown family in a Node": {AddressPolicy{}, map[string]string{AnnotationAddressFamilies: "ipv5"}, "", `annotation anyccm.io/node-address-families: "ipv5" is not ipv4, ipv6 or both`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node("alpha://1", true)
			n.Annotations = c.annotations
			got, err := c.policy.choose(n, reported)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, texts(got))
		})
	}
	scattered := []v1.NodeAddress{reported[1], reported[3], reported[2], reported[4]} // types alternate
	got, err := AddressPolicy{Families: []string{"ipv6", "ipv4"}}.choose(node("alpha://1", true), scattered)
	require.NoError(t, err)
	assert.Equal(t, "fd00::1 2001:db8::1 10.0.0.1 198.18.0.1", texts(got))
	for _, bad := range []AddressPolicy{
		{Families: []string{"ipv4", "ipv4"}},
		{Families: []string{"IPv4"}},
		{Include: []string{"x"}},
		{Exclude: []string{"10.0.0.0/33"}},
	} {
		require.ErrorContains(t, bad.Validate(), "--node-address-", fmt.Sprint(bad))
	}
}

func TestAddressPolicyIsAboveEveryProvider(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.Addresses = AddressPolicy{Families: []string{"ipv6"}}
	g := Wrap(&cloud{metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) {
		return &cloudprovider.InstanceMetadata{ProviderID: "alpha://1", NodeAddresses: reported}, nil
	}}, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: p})
	instances, _ := g.InstancesV2()
	m, err := instances.InstanceMetadata(t.Context(), node("", true))
	require.NoError(t, err)
	assert.Equal(t, "n fd00::1 2001:db8::1 n.example.com", texts(m.NodeAddresses))
	assert.Len(t, reported, 6, "what the provider keeps is not changed")
}
