package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegistered(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]target{
		"none":        {},
		"one port":    {{"i-b", 30080}, {"i-a", 30080}},
		"some others": {{"i-b", 30080}, {"i-a", 30081}, {"i-a", 30080}, {"i-c", 0}},
	} {
		got := newTargetSet(list).targets()
		assert.ElementsMatch(t, list, got, name)
	}
}

// TestBackendsAreKeptOnce: target groups of different ports, and classic load balancers, whose instances are told in different orders keep
// one list of them.
func TestBackendsAreKeptOnce(t *testing.T) {
	t.Parallel()
	ids := make([]string, 1000)
	for n := range ids {
		ids[n] = fmt.Sprintf("i-%017x", n)
	}
	keep, keepClassic := shareTargetLists(), shareInstanceLists()
	var lists [][]string
	var classics [][]elbtypes.Instance
	for port := range int32(50) {
		slices.Reverse(ids)
		var list []target
		lb := &classicLoadBalancer{}
		for _, id := range ids {
			id = strings.Clone(id) // as decoding makes it: another string with the same text
			list = append(list, target{id, 30000 + port})
			lb.Instances = append(lb.Instances, elbtypes.Instance{InstanceId: aws.String(id)})
		}
		kept := keep(keyedValue[targetSet]{strconv.Itoa(int(port)), newTargetSet(list)})
		require.ElementsMatch(t, list, kept.value.targets())
		lists, classics = append(lists, kept.value.ids), append(classics, keepClassic(lb).Instances)
	}
	for n := range lists {
		assert.Same(t, &lists[0][0], &lists[n][0])
		assert.Same(t, &classics[0][0], &classics[n][0])
	}
}
