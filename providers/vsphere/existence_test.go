package vsphere

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

func TestProviderIDInUpperCase(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		n := conformance.NewNode("worker", providerIDPrefix+strings.ToUpper(m.UUID))
		w.RequireExists(n)
		got, err := w.Metadata(n)
		require.NoError(w, err)
		assert.Equal(w, n.Spec.ProviderID, got.ProviderID, "a provider ID is never changed")
	})
}

// TestSwappedProviderIDAnswersEveryQuestion: no crash, and metadata as well, where the provider ID has the other order of bytes.
func TestSwappedProviderIDAnswersEveryQuestion(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		n := conformance.NewNode("worker", providerIDPrefix+swapBytes(m.UUID))
		w.RequireExists(n)
		assert.False(w, w.ShutDown(n))
		got, err := w.Metadata(n)
		require.NoError(w, err)
		assert.Equal(w, n.Spec.ProviderID, got.ProviderID)

		reported := conformance.NewNode("worker", "")
		reported.Status.NodeInfo.SystemUUID = strings.ToUpper(swapBytes(m.UUID))
		got, err = w.Metadata(reported)
		require.NoError(w, err)
		assert.Equal(w, providerIDPrefix+m.UUID, got.ProviderID, "as vCenter has it")

		w.sims[0].Destroy(m)
		w.Later()
		w.RequireGone(n)
	})
}

// TestForeignOrMalformedProviderIDIsNeverGone: the original deletes such Nodes.
func TestForeignOrMalformedProviderIDIsNeverGone(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		for _, id := range []string{"aws:///eu-west-1a/i-0123", "vsphere://worker", "vsphere://4230", "vsphere:///a/b"} {
			w.RequireDoubt(conformance.NewNode("worker", id), "is not of the form")
		}
		assert.Zero(w, w.calls())
	})
}

// TestHostNameInOtherCase: the original leaves such Nodes uninitialised.
func TestHostNameInOtherCase(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "vm", HostName: "Worker-1"})
		w.start()
		got, err := w.Metadata(conformance.NewNode("worker-1", ""))
		require.NoError(w, err)
		assert.Equal(w, providerIDPrefix+m.UUID, got.ProviderID)
		assert.Equal(w, "Worker-1", got.NodeAddresses[0].Address)
	})
}

func TestCopiesWithOneUUID(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.sims[0].Add(vspheresim.Spec{Name: "copy", UUID: m.UUID, Off: true})
		w.sims[0].Add(vspheresim.Spec{Name: "template", UUID: m.UUID, Template: true})
		w.start()
		w.RequireExists(nodeOf(m))
		assert.False(w, w.ShutDown(nodeOf(m)), "the one that runs is meant")
		got, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		assert.Equal(w, "worker", got.NodeAddresses[0].Address)

		w.sims[0].Add(vspheresim.Spec{Name: "second", UUID: m.UUID, HostName: "other"})
		w.start()
		w.RequireDoubt(nodeOf(m), "is that of 2 virtual machines")
		got, err = w.Metadata(nodeOf(m))
		require.NoError(w, err, "the host name decides")
		assert.Equal(w, "worker", got.NodeAddresses[0].Address)
	})
}

func TestNodeNamedAfterItsAddress(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{
			Name: "vm", HostName: "localhost", NICs: []types.GuestNicInfo{{DeviceConfigId: 1, IpAddress: []string{"10.9.8.7"}}},
		})
		w.start()
		got, err := w.Metadata(conformance.NewNode("10.9.8.7", ""))
		require.NoError(w, err)
		assert.Equal(w, providerIDPrefix+m.UUID, got.ProviderID)
	})
}

// TestSystemUUIDOfNoMachine: the machine with the host name is another one than the node runs on.
func TestSystemUUIDOfNoMachine(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		n := conformance.NewNode("worker", "")
		n.Status.NodeInfo.SystemUUID = "00112233-4455-6677-8899-aabbccddeeff"
		_, err := w.Metadata(n)
		require.ErrorContains(w, err, n.Status.NodeInfo.SystemUUID)
		require.ErrorContains(w, err, m.UUID)
		require.ErrorContains(w, err, "start kubelet with --provider-id")
	})
}

func TestDestroyedMachineIsGone(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "other"})
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		n := nodeOf(m)
		w.start()
		w.RequireExists(n)
		w.sims[0].Destroy(m)
		w.Later()
		w.RequireGone(n)
		w.start()
		w.RequireGone(n)
	})
}

// TestRecreatedNodeIsNotDeletedByItsPredecessor: another machine has the name now.
func TestRecreatedNodeIsNotDeletedByItsPredecessor(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		old := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		w.sims[0].Destroy(old)
		w.Later()
		w.RequireGone(nodeOf(old))
		replaced := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		got, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		assert.Equal(w, providerIDPrefix+replaced.UUID, got.ProviderID)
		w.RequireExists(nodeOf(replaced))
	})
}

// TestPoweredOffWithoutGuestDataIsShutDown: vCenter knows nothing of a guest that does not run.
func TestPoweredOffWithoutGuestDataIsShutDown(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		off := w.sims[0].Add(vspheresim.Spec{Name: "off"})
		suspended := w.sims[0].Add(vspheresim.Spec{Name: "suspended"})
		w.sims[0].PowerOff(off)
		w.sims[0].Suspend(suspended)
		w.start()
		for _, m := range []*vspheresim.Machine{off, suspended} {
			w.RequireExists(nodeOf(m))
			assert.True(w, w.ShutDown(nodeOf(m)), m.Name)
		}
	})
}

// TestInaccessibleMachineIsNeverGone: its datastore or host is down, so that no search finds it.
func TestInaccessibleMachineIsNeverGone(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		other := w.sims[0].Add(vspheresim.Spec{Name: "other"})
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].Lose(m)
		w.Later()
		w.RequireExists(nodeOf(m))
		w.start()
		w.RequireDoubt(nodeOf(m), "1 virtual machines are not accessible, and it may be one of them: worker")
		w.RequireExists(nodeOf(other))
	})
}

// TestRefusedPropertyIsNoAbsence: the machine was found, and then not read.
func TestRefusedPropertyIsNoAbsence(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.fail(simkit.Fault{Kind: "missing-set"})
		for range 2 {
			w.Later()
			exists, err := w.Exists(nodeOf(m))
			assert.True(w, exists || err != nil)
			w.start()
		}
		w.RequireDoubt(nodeOf(m), "does not prove that it is gone")
	})
}

func TestEmptyOrCutListingIsNoAbsence(t *testing.T) {
	for _, kind := range []string{"empty-list", "cut-list"} {
		t.Run(kind, func(t *testing.T) {
			inWorld(t, "", nil, func(w *testWorld) {
				w.sims[0].Add(vspheresim.Spec{Name: "other"})
				m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
				n := nodeOf(m)
				w.sims[0].Destroy(m)
				w.start()
				w.fail(simkit.Fault{Kind: kind})
				w.RequireDoubt(n, "broke off")
			})
		})
	}
}

func TestRenamedDatacenterIsNoAbsence(t *testing.T) {
	inWorld(t, `global: {server: "SERVER1", user: ccm@vsphere.local, password: ccm-password, datacenters: [DC0]}`, nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		gone := w.sims[0].Add(vspheresim.Spec{Name: "gone"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].RenameDatacenter("DC0", "Renamed")
		w.sims[0].Destroy(gone)
		w.Later()
		w.RequireExists(nodeOf(m))
		w.RequireDoubt(nodeOf(gone), `there is no datacenter "DC0", or the account cannot see it; there are /Renamed`)
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "correct datacenters of the cloud config")
	})
}

func TestMachineInAnotherDatacenterExists(t *testing.T) {
	config := `global: {server: "SERVER1", user: ccm@vsphere.local, password: ccm-password, datacenters: [DC0]}`
	inWorld(t, config, []vspheresim.Options{{Datacenters: 2}}, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].Move(m, "DC1")
		w.start()
		w.RequireExists(nodeOf(m))
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "the guest of no virtual machine reports the host name", "names count in the configured datacenters alone")
	})
}

// TestDatacentersByNamePathAndReference finds new nodes in the configured datacenters alone.
func TestDatacentersByNamePathAndReference(t *testing.T) {
	for config, found := range map[string]bool{
		"":                         false, // it is in a folder
		", datacenters: [DC0]":     false,
		", datacenters: [/F0/DC0]": true,
		", datacenters: [Datacenter:datacenter-REF]": true,
		", datacenters: [datacenter-REF]":            true,
	} {
		t.Run(config, func(t *testing.T) {
			full := `global: {server: "SERVER1", user: ccm@vsphere.local, password: ccm-password` + config + "}"
			inWorld(t, full, []vspheresim.Options{{InFolders: true}}, func(w *testWorld) {
				w.sims[0].Add(vspheresim.Spec{Name: "worker"})
				ref := strings.TrimPrefix(w.sims[0].Datacenter("DC0").Value, "datacenter-")
				w.config = strings.ReplaceAll(w.config, "REF", ref)
				w.start()
				_, err := w.Metadata(conformance.NewNode("worker", ""))
				if err != nil { // the first question lists, and the datacenters are known afterwards
					_, err = w.Metadata(conformance.NewNode("worker", ""))
				}
				assert.Equal(w, found, err == nil, "%v", err)
			})
		})
	}
}

// TestFaultTolerance: the virtual machine that shadows another one has its UUID, its host name and its power state, and is no copy.
func TestFaultTolerance(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		shadow := w.sims[0].Add(vspheresim.Spec{Name: "worker", UUID: m.UUID, Secondary: true})
		w.start()
		for _, n := range []*v1.Node{nodeOf(m), conformance.NewNode("worker", "")} {
			metadata, err := w.Metadata(n)
			require.NoError(w, err)
			assert.Equal(w, providerIDPrefix+m.UUID, metadata.ProviderID)
			assert.False(w, w.ShutDown(n))
		}
		w.sims[0].Destroy(m) // the other one takes over, and vCenter has not said so yet
		w.Later()
		w.RequireExists(nodeOf(shadow))
	})
}

// TestMachineInAVApp: it has no folder, and is found by its host name and its address all the same.
func TestMachineInAVApp(t *testing.T) {
	t.Run("with rights", func(t *testing.T) {
		inWorld(t, "", nil, func(w *testWorld) {
			m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.sims[0].IntoVApp(m)
			w.start()
			metadata, err := w.Metadata(conformance.NewNode("worker", ""))
			require.NoError(w, err)
			assert.Equal(w, providerIDPrefix+m.UUID, metadata.ProviderID)
			w.RequireExists(nodeOf(m))
			w.sims[0].Destroy(m)
			w.Later()
			w.RequireGone(nodeOf(m))
		})
	})
	t.Run("without rights", func(t *testing.T) {
		inWorld(t, "", nil, func(w *testWorld) {
			w.sims[0].Add(vspheresim.Spec{Name: "other"})
			m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.sims[0].IntoVApp(m)
			w.sims[0].Hide(m)
			w.start()
			w.RequireDoubt(nodeOf(m), "the account lacks System.Read on folder /DC0/host/DC0_C0/Resources/app of worker")
		})
	})
}

// TestLostRightsAreNoAbsence: vCenter leaves out what the account may not read, without a word.
func TestLostRightsAreNoAbsence(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "other"})
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].Hide(m)
		w.Later()
		w.RequireDoubt(nodeOf(m), "NoPermission")
		w.start()
		w.RequireDoubt(nodeOf(m), "the account lacks System.Read on folder /DC0/vm")
	})
}

// TestReplacedVCenterIsNoAbsence: another vCenter answers at the address.
func TestReplacedVCenterIsNoAbsence(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].Destroy(m)
		w.sims[0].Replace("ffffffff-0000-0000-0000-000000000001")
		w.Later()
		w.RequireDoubt(nodeOf(m), "another vCenter answers at this address: instance ffffffff-0000-0000-0000-000000000001")
	})
}

// TestInstanceUUIDInProviderIDIsNoAbsence: vCenter has a UUID of its own for each virtual machine, which users mistake for the BIOS UUID.
func TestInstanceUUIDInProviderIDIsNoAbsence(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker", InstanceUUID: "50300001-3f21-5a6b-9c0d-000000000001"})
		w.start()
		for _, id := range []string{"50300001-3f21-5a6b-9c0d-000000000001", swapBytes("50300001-3f21-5a6b-9c0d-000000000001")} {
			w.RequireDoubt(conformance.NewNode("worker", providerIDPrefix+id), "start kubelet with --provider-id="+providerIDPrefix+m.UUID)
		}
	})
}

// TestMachineInAnotherVCenterExists: it was moved there, and its former vCenter proves nothing.
func TestMachineInAnotherVCenterExists(t *testing.T) {
	inWorld(t, twoVCenters, []vspheresim.Options{{}, {}}, func(w *testWorld) {
		w.sims[0].Add(vspheresim.Spec{Name: "a", UUID: "4230aaaa-3f21-5a6b-9c0d-000000000001"})
		w.sims[1].Add(vspheresim.Spec{Name: "b", UUID: "4230bbbb-3f21-5a6b-9c0d-000000000002"})
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker", UUID: "4230cccc-3f21-5a6b-9c0d-000000000003"})
		w.start()
		w.RequireExists(nodeOf(m))
		w.sims[0].Destroy(m)
		w.sims[1].Add(vspheresim.Spec{Name: "worker", UUID: m.UUID})
		w.Later()
		w.RequireExists(nodeOf(m))
		w.start()
		w.RequireExists(nodeOf(m))
	})
}

// TestCopyThatOutlivesItsOriginal keeps the Node: nobody knows which of the two it ran on.
func TestCopyThatOutlivesItsOriginal(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		w.sims[0].Add(vspheresim.Spec{Name: "copy", UUID: m.UUID, Off: true})
		n := nodeOf(m)
		w.start()
		w.RequireExists(n)
		w.sims[0].Destroy(m)
		w.Later()
		w.RequireExists(n)
		assert.True(w, w.ShutDown(n))
	})
}

func TestSkipNodeDeletion(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		w.env[envSkipDeletion] = ""
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
		n := nodeOf(m)
		w.sims[0].Destroy(m)
		w.start()
		w.RequireDoubt(n, "no vCenter has it, and SKIP_NODE_DELETION is set")
	})
}

// TestLateToolsAreAwaited: a node with a preset provider ID is initialised as soon as its guest reports.
func TestLateToolsAreAwaited(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker", NoTools: true})
		w.start()
		n := conformance.NewNode("worker", providerIDPrefix+m.UUID)
		_, err := w.Metadata(n)
		require.ErrorContains(w, err, "is VMware Tools running in it?")
		_, err = w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "start VMware Tools in it")
		w.sims[0].Edit(m, func(vm *mo.VirtualMachine) {
			vm.Guest = &types.GuestInfo{HostName: "worker", Net: []types.GuestNicInfo{{DeviceConfigId: 1, IpAddress: []string{"10.0.0.5"}}}}
		})
		got, err := w.Metadata(n)
		require.NoError(w, err, "it is read again, not answered from memory")
		assert.Equal(w, "10.0.0.5", got.NodeAddresses[1].Address)
	})
}

// TestMemoryOfWhatIsGoneIsBounded: other virtual machines than nodes come and go all the time, and nobody asks about them.
func TestMemoryOfWhatIsGoneIsBounded(t *testing.T) {
	t.Parallel()
	s := newKnownMachines()
	numbered := func(n int) machine {
		return machine{
			Ref: types.ManagedObjectReference{Type: kindMachine, Value: fmt.Sprintf("vm-%d", n)}, UUID: fmt.Sprintf("4230aaaa-3f21-5a6b-9c0d-%012d", n),
			NICs: []types.GuestNicInfo{{Network: "VM Network"}},
		}
	}
	const round, rounds = 500, maxMissing/500 + 3
	for r := range rounds {
		shown := []machine{numbered(0)}
		for n := range round {
			shown = append(shown, numbered(1+r*round+n))
		}
		known, _ := s.recall(shown)
		s.noteMissingLocked(known)
	}
	assert.Len(t, s.machines, maxMissing+round+1)
	assert.Len(t, s.missing, maxMissing)
	for n, want := range map[int]int{0: 1, 1: 0, (rounds-2)*round + 1: 1, rounds * round: 1} {
		assert.Len(t, s.machinesOf(canonicalUUID(numbered(n).UUID)), want, n)
	}
	assert.Empty(t, s.machinesOf(canonicalUUID(numbered((rounds - 2) * round).UUID))[0].NICs, "little is kept")
	assert.NotEmpty(t, s.machinesOf(canonicalUUID(numbered(0).UUID))[0].NICs)
}

// TestSameHostName: of several virtual machines with the host name of a node, kubelet's system UUID says which one it runs on, in either
// order of bytes and in any case: neither a machine of another cluster nor a guest that takes the name keeps the node waiting.
func TestSameHostName(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		ours := w.sims[0].Add(vspheresim.Spec{Name: "worker", HostName: "worker"})
		theirs := w.sims[0].Add(vspheresim.Spec{Name: "tenants-vm", HostName: "worker"})
		w.start()
		for _, m := range []*vspheresim.Machine{ours, theirs} {
			for _, form := range []string{m.UUID, strings.ToUpper(m.UUID), swapBytes(m.UUID)} {
				n := conformance.NewNode("worker", "")
				n.Status.NodeInfo.SystemUUID = form
				got, err := w.Metadata(n)
				require.NoError(w, err, form)
				assert.Equal(w, providerIDPrefix+m.UUID, got.ProviderID)
			}
		}
		for _, uuid := range []string{"", "00112233-4455-6677-8899-aabbccddeeff"} {
			n := conformance.NewNode("worker", "")
			n.Status.NodeInfo.SystemUUID = uuid
			_, err := w.Metadata(n)
			require.ErrorContains(w, err, "virtual machines report the host name", "a UUID of neither proves nothing")
			require.ErrorContains(w, err, "/DC0/vm/worker")
			require.ErrorContains(w, err, "/DC0/vm/tenants-vm")
		}
	})
}

// TestDatacenterWithComma: an item of a list in YAML is one name; where a text is a list, %2c stands for the comma.
func TestDatacenterWithComma(t *testing.T) {
	for name, datacenters := range map[string]string{
		"a list":  `["Berlin - Region, State"]`,
		"a text":  `"Berlin - Region%2C State"`,
		"by path": `["/Berlin - Region, State"]`,
	} {
		for where, config := range map[string]string{
			"global":  "global: {server: \"SERVER1\", user: ccm@vsphere.local, password: ccm-password, datacenters: " + datacenters + "}",
			"vcenter": "vcenter:\n  one: {server: \"SERVER1\", user: ccm@vsphere.local, password: ccm-password, datacenters: " + datacenters + "}\n",
		} {
			t.Run(name+", "+where, func(t *testing.T) {
				inWorld(t, config, nil, func(w *testWorld) {
					m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
					w.sims[0].RenameDatacenter("DC0", "Berlin - Region, State")
					w.start()
					var got *cloudprovider.InstanceMetadata
					var err error
					for range 2 { // the first look finds what was renamed
						got, err = w.Metadata(conformance.NewNode("worker", ""))
					}
					require.NoError(w, err)
					assert.Equal(w, providerIDPrefix+m.UUID, got.ProviderID)
				})
			})
		}
	}
}
