// Golden vectors in C++17, no library: g++ -std=c++17 reader.cpp -o reader && ./reader CASE.npz
// An .npz here is an uncompressed zip of .npy members, little-endian, in C order.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
struct Array {
    std::string type;  // "<f8", "<i8" or "|b1"
    std::vector<size_t> shape;
    std::vector<double> data;  // whole numbers and flags as doubles
};
template <class T> T at(const std::string& s, size_t i) {
    if (i + sizeof(T) > s.size()) throw std::runtime_error("the file ends early");
    T x;
    s.copy(reinterpret_cast<char*>(&x), sizeof x, i);
    return x;
}
Array read_npy(const std::string& s) {
    if (s.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8))) throw std::runtime_error("not .npy 1.0");
    size_t start = 10 + at<uint16_t>(s, 8), count = 1, i = s.find("(") + 1;
    Array a;
    a.type = s.substr(s.find("'descr': '") + 10, 3);
    for (; s[i] != ')'; i++)
        if (isdigit(s[i])) {
            size_t used;
            a.shape.push_back(std::stoul(s.substr(i), &used));
            count *= a.shape.back(), i += used - 1;
        }
    for (size_t k = 0; k < count; k++)
        a.data.push_back(a.type == "<f8"   ? at<double>(s, start + 8 * k)
                         : a.type == "<i8" ? double(at<int64_t>(s, start + 8 * k))
                                           : double(at<uint8_t>(s, start + k)));
    return a;
}
std::map<std::string, Array> read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string s((std::istreambuf_iterator<char>(file)), {});
    if (!file || s.compare(0, 4, "PK\3\4")) throw std::runtime_error(path + ": no .npz that can be read");
    std::map<std::string, Array> out;
    for (size_t i = 0; at<uint32_t>(s, i) == 0x04034b50;) {  // a member's local header
        size_t size = at<uint32_t>(s, i + 18), n = at<uint16_t>(s, i + 26), m = at<uint16_t>(s, i + 28);
        out[s.substr(i + 30, n - 4)] = read_npy(s.substr(i + 30 + n + m, size));
        i += 30 + n + m + size;
    }
    return out;
}
int main(int count, char** argv) try {
    if (count != 2) throw std::runtime_error("usage: reader CASE.npz");
    for (auto& [name, a] : read(argv[1])) {
        std::printf("%s\t%s\t%s", name.c_str(), a.type.c_str(), a.shape.empty() ? "-" : "");
        for (size_t k = 0; k < a.shape.size(); k++) std::printf(k ? "x%zu" : "%zu", a.shape[k]);
        std::printf("\t");
        for (size_t k = 0; k < a.data.size(); k++) std::printf(k ? " %.17g" : "%.17g", a.data[k]);
        std::puts("");
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
