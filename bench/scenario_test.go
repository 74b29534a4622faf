package bench

import (
	"reflect"
	"testing"
)

func TestPlansRepeat(t *testing.T) {
	for _, s := range Scenarios {
		one, two := s.Plan(30, 8, 100, 7), s.Plan(30, 8, 100, 7)
		if !reflect.DeepEqual(one, two) {
			t.Errorf("%s: one seed, two plans:\n%v\n%v", s.Name, one, two)
		}
		if other := s.Plan(30, 8, 100, 8); s.Members == nil && reflect.DeepEqual(one, other) {
			t.Errorf("%s: seeds 7 and 8 make the same plan", s.Name)
		}
		if one[0].Class != Flood && s.Balance != RoundRobin {
			t.Errorf("%s: the first tenant is %s: balancers that treat it differently would not meet the flood", s.Name, one[0].Class)
		}
	}
}

// TestClassesAreWhatTheyAreCalled: in every scenario of any size the oracle
// gives small tenants all they ask for, and the backlogged ones less.
func TestClassesAreWhatTheyAreCalled(t *testing.T) {
	for _, s := range Scenarios {
		for _, tenants := range []int{10, 30, 100, 1000} {
			plan := s.Plan(tenants, 8, 100, 1)
			demand, weight := make([]float64, len(plan)), make([]float64, len(plan))
			names := map[string]bool{}
			for i, p := range plan {
				demand[i], weight[i], names[p.Tenant] = p.Rate, p.Weight, true
			}
			for i, got := range Entitled(100, demand, weight) {
				if hungry := got < demand[i]*0.95; hungry != plan[i].Class.Backlogged() {
					t.Errorf("%s, %d tenants: %s is entitled to %.2f of %.2f asked", s.Name, tenants, plan[i].Tenant, got, demand[i])
				}
			}
			if len(names) != len(plan) {
				t.Errorf("%s, %d tenants: only %d names", s.Name, tenants, len(names))
			}
		}
	}
}

func TestPlacesOfTenants(t *testing.T) {
	s, err := FindScenario("heavyall")
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Plan(30, 8, 100, 1)
	if plan[0].Settled || plan[0].Places != 8*s.Places {
		t.Errorf("the flood reaches all replicas: %+v", plan[0])
	}
	if !plan[1].Settled || plan[1].Places != s.Places {
		t.Errorf("all others stay on one: %+v", plan[1])
	}
	if alone := s.Plan(30, 1, 100, 1); !alone[0].Settled {
		t.Error("on a single replica everybody stays")
	}
}

func TestFindScenarioNamesAll(t *testing.T) {
	_, err := FindScenario("quiet")
	if err == nil || len(err.Error()) < 100 {
		t.Errorf("error %v, want one that names the scenarios", err)
	}
	for _, s := range Scenarios {
		if found, err := FindScenario(s.Name); err != nil || found.Help == "" {
			t.Errorf("%s: %v, help %q", s.Name, err, found.Help)
		}
	}
}
