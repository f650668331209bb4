#include <algorithm>
#include <vector>

//---------------------------------------------------------------------
namespace linear {

template <typename T>
class Matrix {
public:
    Matrix(std::size_t rows, std::size_t columns) : rows_(rows), columns_(columns), data_(rows * columns) {}

    T &operator()(std::size_t row, std::size_t column) { return data_[row * columns_ + column]; }

    Matrix transposed() const {
        Matrix other(columns_, rows_);
        for (std::size_t i = 0; i < rows_; ++i)
            for (std::size_t j = 0; j < columns_; ++j)
                other(j, i) = data_[i * columns_ + j];
        return other;
    }

private:
    std::size_t rows_, columns_;
    std::vector<T> data_;
};

}  // namespace linear
