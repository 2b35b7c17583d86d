#include <doctest/doctest.h>

#include <set>

#include "estimators/base/error.h"
#include "estimators/facts/cards.h"
#include "estimators/facts/device.h"
#include "estimators/facts/rates.h"

using namespace memplan;

TEST_CASE("every device of the data file has a name, a size and an architecture of its own") {
  std::set<std::string> keys;
  for (const Device& d : devices()) {
    CAPTURE(d.key);
    CHECK(keys.insert(d.key).second);
    CHECK(d.total >= Bytes::gib(3));
    CHECK(d.context > Bytes(0));
    CHECK(d.context < Bytes::gib(1));
    CHECK(d.sm() >= 60);
    CHECK(d.multiprocessors >= 10);
    CHECK_FALSE(d.source.empty());
    CHECK_FALSE(d.context_source.empty());
  }
  CHECK(keys.size() >= 40);
}

TEST_CASE("a card is found by its key or name, however it is spelt") {
  const Device h100 = choose_device("h100-80gb").device;
  CHECK(h100.sm() == 90);
  CHECK(h100.multiprocessors == 132);
  CHECK(h100.total == Bytes(static_cast<std::int64_t>(79.11 * (1LL << 30))));  // vllm-project/vllm#27508
  CHECK_FALSE(h100.total_is_bound);
  CHECK(choose_device("H100 80GB").device.key == "h100-80gb");
  CHECK(choose_device("NVIDIA L4").device.key == "l4");
  CHECK(choose_device("l4").device.total_is_bound);
}

TEST_CASE("a label means the smallest card sold under it") {
  const DeviceChoice choice = choose_device("80GB");
  for (const Device& d : devices())
    if (d.key.find("80gb") != std::string::npos) CHECK(choice.device.total <= d.total);
  CHECK(choice.device.key == "h100-80gb");
  CHECK(choice.explanation.find("80GB class -> 79.11 GiB (h100-80gb, the smallest of 6 cards") == 0);
  CHECK(choose_device("80 gb").device.key == choice.device.key);
}

TEST_CASE("binary units, bytes and labels that nobody sells are exact sizes") {
  CHECK(choose_device("79GiB").device.total == Bytes::gib(79));
  CHECK(choose_device("81920MiB").device.total == Bytes::mib(81920));
  CHECK(choose_device("85000000000").device.total == Bytes(85000000000));
  CHECK(choose_device("50GB").device.total == Bytes(50000000000));
  CHECK(choose_device("79GiB").device.sm() == 90);
}

TEST_CASE("an unknown GPU is a usage error that names near ones") {
  for (const char* text : {"h1000", "a100", "80XB", "-5GiB", "0", "1e300GB", "", "nan"}) {
    CAPTURE(text);
    try {
      choose_device(text);
      FAIL("accepted");
    } catch (const Failure& failure) {
      CHECK(failure.error().kind == ErrorKind::usage);
      CHECK_FALSE(failure.error().hint.empty());
    }
  }
  try {
    choose_device("a100");
  } catch (const Failure& failure) {
    CHECK(failure.error().hint.find("a100-40gb, a100-80gb, a100-pcie-40gb") != std::string::npos);
  }
}

TEST_CASE("ECC takes 1/16 of GDDR memory: totals that nvidia-smi shows with and without it") {
  const std::pair<std::int64_t, std::int64_t> totals[] = {{49140, 46068}, {24564, 23028}, {16384, 15360}};
  for (const auto& [without, with] : totals) {
    const std::int64_t off = without, on = with;  // clang 14 captures no names of a structured binding
    CAPTURE(off);
    CHECK(with_ecc(Bytes::mib(off)) == Bytes::mib(on));
    CHECK(without_ecc(Bytes::mib(on)) == Bytes::mib(off));
  }
}

TEST_CASE("cards whose ECC is a switch are given with it on or off") {
  CHECK(choose_device("a6000").device.total == Bytes::mib(49140));
  CHECK(choose_device("a6000+ecc").device.total == Bytes::mib(46068));
  CHECK(choose_device("NVIDIA RTX A6000+ecc").device.key == "a6000+ecc");
  CHECK(choose_device("a6000+noecc").device.total == Bytes::mib(49140));
  CHECK(choose_device("a40").device.total == Bytes::mib(46068));
  CHECK(choose_device("a40+noecc").device.total == Bytes::mib(49140));
  CHECK(choose_device("a10+noecc").device.total == Bytes::mib(24564));
  CHECK(choose_device("t4+noecc").device.total == Bytes::mib(16384));
  // A total that CUDA reported stays where the switch stands as it stood then.
  CHECK(choose_device("t4+ecc").device.total == choose_device("t4").device.total);
  const Device other = choose_device("a40+noecc").device;
  CHECK(other.total_is_bound);
  CHECK(other.sm() == 86);
  CHECK(card_of(other) == "a40");
  CHECK(card_of(choose_device("79GiB").device).empty());
  CHECK(rates_of(other).memory == rates_of(choose_device("a40").device).memory);
}

TEST_CASE("a switch that a card does not have is a usage error") {
  // HBM has room of its own for ECC; a GeForce card has none; a size has no switch.
  for (const char* text : {"h100-80gb+noecc", "rtx4090+ecc", "a6000+off", "a6000+", "80GB+ecc", "48GB+noecc"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(choose_device(text), Failure);
  }
}

TEST_CASE("the context of a card is what published runs say: its own, else those of cards like it by their threads") {
  const auto mib = [](Bytes b) { return static_cast<double>(b.count) / (1 << 20); };
  const auto least = [](const Device& d) { return d.context - d.context_below; };
  const auto most = [](const Device& d) { return d.context + d.context_above; };
  // Per resident thread the second lowest of all runs is 379 MiB on an RTX 4090, the second highest 963 MiB on an H100.
  const auto second_lowest = [](double threads) { return 379 / (128 * 1536.0) * threads; };
  const auto second_highest = [](double threads) { return 963 / (132 * 2048.0) * threads; };
  // Six messages from T4s: 99, 119, 128, 137, 140 and 141 MiB.
  const Device t4 = choose_device("t4").device;
  CHECK(mib(t4.context) == 132.5);
  CHECK(mib(least(t4)) == doctest::Approx(second_lowest(40 * 1024)));
  CHECK(mib(most(t4)) == doctest::Approx(second_highest(40 * 1024)));
  // None from an RTX 3060 of 28 multiprocessors; of 8.6 there are 251 MiB on 82, 224 on 72, 257 on 68, 210 on 48 and
  // 179 on 46.
  const Device rtx3060 = choose_device("rtx3060-12gb").device;
  CHECK(mib(rtx3060.context) == doctest::Approx(257.0 / 68 * 28));
  CHECK(mib(least(rtx3060)) == doctest::Approx(second_lowest(28 * 1536)));
  CHECK(mib(most(rtx3060)) == doctest::Approx(second_highest(28 * 1536)));
  // One from a V100, the only one of 7.0, far above the others: the range reaches it.
  const Device v100 = choose_device("v100-sxm2-16gb").device;
  CHECK(v100.context < Bytes::mib(500));
  CHECK(most(v100) == Bytes::mib(869));
  // A size that was given is like an H100.
  CHECK(choose_device("79GiB").device.context == choose_device("h100-80gb").device.context);
  Device given = t4;
  set_context(given, Bytes::mib(500), "--reserve");
  CHECK(given.context_below == Bytes());
  CHECK(given.context_above == Bytes());
}
